"""`python -m nugget.demo` (and `make demo`)."""

import sys

from nugget.demo.flywheel import main

sys.exit(main())
