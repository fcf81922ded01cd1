"""Python imports this at the start of each process that has this folder on its path, also of those that one of them starts."""

import os
import traceback

done = False
try:
    from tests.acceptance.windows.stand_in import become_windows

    become_windows()
    done = True
finally:
    if not done:  # Python would go on without it
        traceback.print_exc()
        os._exit(99)
