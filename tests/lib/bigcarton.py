# SPDX-License-Identifier: Apache-2.0
"""A carton with a file that is longer than 4 GiB, and sparse."""
import zipwriter

BIG = (4 << 30) + (1 << 20) + 12345     # a Stored entry beyond 4 GiB
BIG_SUMS = 3738719875, 'f8e209f37ec86ff70c0f42c57d8534f9733e1336de65823550403802ff23f471'


def big_carton():
    """model/big is sparse and longer than 4 GiB, misc/after lies behind it."""
    pieces = {0: b'first', (1 << 32) - 3: b'across', BIG - 4: b'last'}
    carton = zipwriter.Carton(method='stored')
    carton.add('model/big', zipwriter.Sparse(BIG, pieces, BIG_SUMS))
    carton.add('misc/after', b'behind 4 GiB\n')
    return carton
