"""Writes bash's completion for datasetctl, of what its --help says.

    make_completion.py DATASETCTL >COMPLETION
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cli_help  # noqa: E402

_TEXT = """\
# bash completion for datasetctl

_datasetctl() {{
  local word command= current=${{COMP_WORDS[COMP_CWORD]}}
  local commands="{commands}"
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    [[ $word == -- ]] && return
    if [[ -z $command && " $commands " == *" $word "* ]]; then
      command=$word
    fi
  done
  local words="{options}"
  case $command in
    "") [[ $current == -* ]] || words=$commands ;;
{cases}
  esac
  # File names, where nothing of these fits.
  [[ -n $command && $current != -* ]] ||
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}}
complete -o default -F _datasetctl datasetctl
"""


def main(program):
    top = cli_help.ask(program)
    names = [name for name, _ in top.subcommands]
    own = {name: [flag for flag in cli_help.ask(program, name).flags()
                  if flag not in top.flags()] for name in names}
    cases = "\n".join(f'    {name}) words+=" {" ".join(flags)}" ;;'
                      for name, flags in own.items() if flags)
    sys.stdout.write(_TEXT.format(
        commands=" ".join(names), options=" ".join(top.flags()), cases=cases))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
