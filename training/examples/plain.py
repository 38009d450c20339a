"""A small transformer, trained by one process. `elastic.py` is the same loop for replica groups that join and leave."""

from __future__ import annotations

import argparse

import torch
from torch.nn import functional

from holdfast_train import GlobalBatch, Order, TokenFile, seed_of


class Model(torch.nn.Module):
    def __init__(self, tokens: int = 64, width: int = 32, length: int = 16) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(tokens, width)
        self.place = torch.nn.Parameter(torch.zeros(length, width))
        self.layer = torch.nn.TransformerEncoderLayer(width, 2, 2 * width, dropout=0.1, batch_first=True)
        self.head = torch.nn.Linear(width, tokens)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = torch.nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        out: torch.Tensor = self.head(self.layer(self.embed(x) + self.place, src_mask=mask, is_causal=True))
        return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tokens")
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = TokenFile(options.tokens, length=16)
    batch = GlobalBatch(samples=24, micro_samples=2)
    order = Order(data.count, batch)
    for step in range(options.steps):
        optimizer.zero_grad()
        for i in range(batch.micro_batches):
            torch.manual_seed(seed_of(0, step, i))
            x, y = data.batch(order.ids(step, i))
            loss = functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
            (loss / batch.micro_batches).backward()
        optimizer.step()


if __name__ == "__main__":
    main()
