"""Trains a small language model on a file of tokens, in the shape of nanoGPT's
train.py, fed by a datasetd daemon.

    python3 train_gpt.py train.bin [--max_iters 2000]
    torchrun --nproc_per_node=2 train_gpt.py train.bin

The file has tokens of uint16, one after another. The job writes checkpoints to
--out_dir, and continues from the last one if it is started again: with the
windows that an uninterrupted run has there, also with another number of ranks.
"""

import argparse
import os

import datasetd
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Model(nn.Module):
    """One layer of a transformer."""

    def __init__(self, vocab_size: int, block_size: int) -> None:
        super().__init__()
        width = 32
        self.tokens = nn.Embedding(vocab_size, width)
        self.positions = nn.Embedding(block_size, width)
        self.layer = nn.TransformerEncoderLayer(
            width, 4, 4 * width, dropout=0.0, batch_first=True
        )
        self.head = nn.Linear(width, vocab_size)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        length = x.shape[1]
        hidden = self.tokens(x) + self.positions.weight[:length]
        future = torch.ones(length, length, device=x.device).triu(1).bool()
        logits = self.head(self.layer(hidden, src_mask=future))
        return nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("path", help="file of tokens")
    parser.add_argument("--out_dir", default="out")
    parser.add_argument("--vocab_size", type=int, default=65)
    parser.add_argument("--block_size", type=int, default=64)
    parser.add_argument(
        "--batch_size", type=int, default=12, help="of all ranks together"
    )
    parser.add_argument("--max_iters", type=int, default=2000)
    parser.add_argument("--checkpoint_interval", type=int, default=250)
    parser.add_argument(
        "--trace", help="directory for the tokens of each iteration"
    )
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    rank = int(os.environ.get("RANK", "0"))
    num_ranks = int(os.environ.get("WORLD_SIZE", "1"))
    device = "cpu"
    if torch.cuda.is_available():
        device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
        torch.cuda.set_device(device)
    if num_ranks > 1:
        dist.init_process_group("gloo" if device == "cpu" else "nccl")

    # The stream is in memory once, as uint16, for all ranks. An epoch has more
    # windows than a run.
    tokens = datasetd.load("tokens", arguments.path, device=device)
    windows = datasetd.random_windows(arguments.block_size, num_windows=2**31)
    loader = datasetd.DataLoader(
        tokens, arguments.batch_size // num_ranks, windows=windows, seed=1337
    )

    torch.manual_seed(1337)
    model = Model(arguments.vocab_size, arguments.block_size).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    path = os.path.join(arguments.out_dir, "ckpt.pt")
    iter_num = 0
    if os.path.exists(path):
        checkpoint = torch.load(path, map_location=device)
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        loader.load_state_dict(checkpoint["loader"])
        iter_num = checkpoint["iter_num"]
    trained = DistributedDataParallel(model) if num_ranks > 1 else model
    trace = None
    if arguments.trace:
        trace = open(os.path.join(arguments.trace, f"{rank}.txt"), "w")

    os.makedirs(arguments.out_dir, exist_ok=True)
    for x, y in loader:
        loss = trained(x, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if trace:
            print(iter_num, *x.flatten().tolist(), file=trace, flush=True)
        iter_num += 1
        if rank == 0 and iter_num % arguments.checkpoint_interval == 0:
            state = {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "loader": loader.state_dict(),
                "iter_num": iter_num,
            }
            torch.save(state, path + ".new")
            os.replace(path + ".new", path)
        if iter_num >= arguments.max_iters:
            break
    if rank == 0:
        print(f"iter {iter_num}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
