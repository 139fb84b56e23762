"""Writes a manual page of what a program's --help says.

    make_man.py PROGRAM SECTION VERSION END.roff >PAGE
    make_man.py --config VERSION EXAMPLE.yaml >datasetd.yaml.5
"""

import os
import pathlib
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cli_help  # noqa: E402


def escape(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join("\\&" + line if line[:1] in (".", "'") else line
                     for line in text.split("\n"))


def item(spec, text):
    flags, _, rest = spec.partition(" ")
    return (f".TP\n\\fB{escape(flags)}\\fR {escape(rest)}".rstrip() + "\n"
            + escape(text or "-") + "\n")


def items(pairs):
    return "".join(item(*pair) for pair in pairs
                   if not pair[0].startswith("-h,"))


def program_page(program, section, version, end):
    name = os.path.basename(program)
    top = cli_help.ask(program)
    summary = top.description.rstrip(".")
    page = (
        f".TH {name.upper()} {section} \"\" \"datasetd {version}\"\n"
        f".SH NAME\n{name} \\- {escape(summary[0].lower() + summary[1:])}\n"
        f".SH SYNOPSIS\n\\fB{name}\\fR "
        f"{escape(top.usage.partition(' ')[2])}\n"
        f".SH OPTIONS\n{items(top.options)}")
    if top.subcommands:
        page += (".SH COMMANDS\nThe options above may stand behind the "
                 "command, too.\n")
    for command, _ in top.subcommands:
        about = cli_help.ask(program, command)
        page += (f".SS {escape(about.usage.partition(' ')[2])}\n"
                 f"{escape(about.description)}.\n"
                 f"{items(about.positionals)}{items(about.options)}")
    return page + pathlib.Path(end).read_text()


def config_page(version, example):
    text = pathlib.Path(example).read_text()
    return (
        f".TH DATASETD.YAML 5 \"\" \"datasetd {version}\"\n"
        ".SH NAME\ndatasetd.yaml \\- configuration of datasetd\n"
        ".SH DESCRIPTION\nEvery key, with what it means and its default. "
        "An unknown key is an error.\n.PP\n.nf\n"
        f"{escape(text)}.fi\n"
        ".SH SEE ALSO\n.BR datasetd (8)\n")


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "--config":
        sys.stdout.write(config_page(*sys.argv[2:]))
    elif len(sys.argv) == 5:
        sys.stdout.write(program_page(*sys.argv[1:]))
    else:
        sys.exit(__doc__)
