# SPDX-License-Identifier: Apache-2.0
"""`python -m shmbroker_cli`: the same as the command `shmbroker`."""

from shmbroker_cli import main

if __name__ == "__main__":
    main()
