"""The example train.py, whose ranks wait after batch 4 of the second epoch until
the file CHECKPOINT.go is there.

    held_train.py EXAMPLES DATA CHECKPOINT EPOCHS
"""

import os
import sys
import time

sys.path.insert(0, sys.argv[1])

import train  # noqa: E402

_noted = train.trained


def trained(batch):
    _noted(batch)
    go = sys.argv[3] + ".go"
    while (batch.epoch, batch.index) == (1, 4) and not os.path.exists(go):
        time.sleep(0.01)


train.trained = trained
train.main(*sys.argv[2:4], int(sys.argv[4]))
