"""`python examples/demo`, which `make demo` runs."""

import sys

from flywheel import main

sys.exit(main())
