"""What every store and every wire takes as text."""

import re

# NUL, which not all stores take, and lone surrogates, which no text in UTF-8 has.
UNSTORABLE = re.compile(r"[\0\ud800-\udfff]")
