"""The programs' command lines; heavy imports stay inside functions, because start-up time counts."""

import os

# Nothing here needs the threads of numpy's linear algebra, and starting them is a third of numpy's import.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
