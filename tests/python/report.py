"""Runs one file of tests with a line for each, as CI counts them: report.py FILE [TEST…]."""

import importlib
import sys
import unittest
import warnings


class Lines(unittest.TestResult):
    """`ok`, `FAIL` or `skip` for each test."""

    def say(self, word, test, more=""):
        kind = type(test).__name__
        print(f"{word} python: {kind}.{test.id().split('.')[-1]}{more}", flush=True)

    def addSuccess(self, test):
        self.say("ok  ", test)

    def addSkip(self, test, reason):
        self.say("skip", test, f": {reason}")

    def addError(self, test, err):
        super().addError(test, err)
        print(self.errors[-1][1])
        self.say("FAIL", test)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        print(self.failures[-1][1])
        self.say("FAIL", test)


def main():
    # The standard library's, of what the steps leave open on purpose.
    warnings.simplefilter("ignore", ResourceWarning)
    module, *names = sys.argv[1:]
    load = unittest.defaultTestLoader
    if names:
        suite = load.loadTestsFromNames([f"{module}.{name}" for name in names])
    else:
        suite = load.loadTestsFromModule(importlib.import_module(module))
    result = Lines()
    suite.run(result)
    if result.testsRun == 0:
        print(f"FAIL python: {module} has no tests")
    sys.exit(not result.wasSuccessful() or result.testsRun == 0)


if __name__ == "__main__":
    main()
