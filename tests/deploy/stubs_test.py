"""Links against the stubs of glibc 2.28, and what the shim adds to them."""

import pathlib
import re
import runpy
import subprocess
import sys
import tempfile
import unittest

from tests.deploy import package_harness as harness

_LIBRARIES = ("libpthread.so.0", "libc.so.6", "libm.so.6", "libdl.so.2",
              "ld-linux-x86-64.so.2")
# Exits with the number of the check that failed.
_PROGRAM = """
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <condition_variable>
#include <stdexcept>

int num_constructed = 0;
struct Counted { Counted() { ++num_constructed; } } counted;
// The shim finds nothing newer in glibc.
extern "C" void* Nothing(void*, const char*) { return nullptr; }

int main(int argc, char** argv) {
  if (num_constructed != 1 || argc != 2 || getenv("PATH") == nullptr) return 1;
  struct stat out;
  if (stat(argv[1], &out) != 0 || !S_ISDIR(out.st_mode)) return 2;
  if (stat("/no such file", &out) == 0 || lstat("/", &out) != 0) return 3;
  if (arc4random() == arc4random() && arc4random() == arc4random()) return 4;
  try {
    throw std::runtime_error("caught");
  } catch (const std::exception&) {
    num_constructed = 0;
  }
  if (num_constructed != 0) return 5;
  std::mutex mutex;
  std::unique_lock<std::mutex> lock(mutex);
  std::condition_variable never;
  const auto start = std::chrono::steady_clock::now();
  const auto wait = std::chrono::milliseconds(20);
  if (never.wait_for(lock, wait) != std::cv_status::timeout) return 6;
  if (std::chrono::steady_clock::now() - start < wait) return 7;
  if (never.wait_for(lock, -wait) != std::cv_status::timeout) return 8;
  return 0;
}
"""


class StubsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        cls.directory = pathlib.Path(directory.name)
        cls.symbols = harness.runfile("third_party/glibc/symbols.txt")
        harness.run(harness.PYTHON, "-I",
                    harness.runfile("third_party/glibc/make_stubs.py"),
                    cls.symbols, "x86_64", cls.directory)
        cls.stubs = [cls.directory / name for name in _LIBRARIES]

    def link(self, source, *options):
        """(exit code, output) of compiling and linking `program`."""
        (self.directory / "source.cc").write_text(source)
        done = subprocess.run(
            ["g++", "-std=c++20", "-fPIC", "-nodefaultlibs", "-o",
             self.directory / "program", self.directory / "source.cc",
             *options, *self.stubs],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=harness.ENVIRONMENT, check=False)
        return done.returncode, done.stdout

    def test_a_symbol_that_is_not_listed_fails_the_link(self):
        code, text = self.link(
            "#include <stdlib.h>\n#include <unistd.h>\n"
            "int main() { return getpid() + arc4random(); }\n")
        self.assertNotEqual(code, 0)
        self.assertIn("undefined reference to `arc4random'", text)
        self.assertNotIn("`getpid'", text)

    def test_versions_are_those_of_glibc(self):
        """Of 2.28 at most, and in this system's glibc, too."""
        have = set()
        for name in _LIBRARIES:
            have.update(re.findall(
                r" (\w+)@@?(GLIBC_[\d.]+)",
                harness.run("readelf", "-W", "--dyn-syms",
                            f"/lib/x86_64-linux-gnu/{name}")))
        num = 0
        for line in self.symbols.read_text().splitlines():
            words = line.split("#")[0].split()
            if words and not line.startswith(" "):
                version = words[1]
                is_here = "aarch64" not in words
                self.assertLessEqual(
                    tuple(map(int, version.split("_")[1].split("."))), (2, 28))
            elif words and is_here:
                for word in words:
                    self.assertIn((word.split("=")[0], version), have)
                    num += 1
        self.assertGreater(num, 300)

    def test_versions_of_aarch64(self):
        """glibc for it is younger; tests/deploy/aarch64.sh runs what they make."""
        make_stubs = runpy.run_path(
            str(harness.runfile("third_party/glibc/make_stubs.py")))
        libraries = make_stubs["read_symbols"](
            self.symbols.read_text(), "aarch64")
        self.assertEqual(libraries.pop("ld-linux-aarch64.so.1"),
                         {"GLIBC_2.17": {"__stack_chk_guard": 8}})
        self.assertEqual(list(libraries), list(_LIBRARIES[1::-1])
                         + list(_LIBRARIES[2:4]))
        libc = libraries["libc.so.6"]
        self.assertEqual(list(libc), [f"GLIBC_2.{minor}"
                                      for minor in (17, 18, 25, 27)])
        for name in ("memcpy", "open", "clock_gettime"):
            self.assertIn(name, libc["GLIBC_2.17"])

    def test_the_shim(self):
        shim = self.directory / "shim.o"
        harness.run("gcc", "-O2", "-fPIC", "-DDATASETD_PROGRAM",
                    "-Ddlsym=Nothing", "-c", "-o", shim,
                    harness.runfile("third_party/glibc/shim.c"))
        code, text = self.link(
            _PROGRAM, "-Wl,--start-group", "-l:libstdc++.a", "-lgcc",
            "-lgcc_eh", shim, "-l:libc_nonshared.a", "-Wl,--end-group")
        self.assertEqual(code, 0, text)
        program = self.directory / "program"
        harness.run(program, "/usr")
        self.assertNotRegex(harness.run("readelf", "-W", "-V", program),
                            r"GLIBC_2\.(29|3\d)")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
