"""A small transformer, trained by a varying number of replica groups. `plain.py` is the same loop without them."""

from __future__ import annotations

import argparse

import torch
from torch.nn import functional

from holdfast_train import GlobalBatch, Order, Session, TokenFile


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
    with Session(model, optimizer, batch) as session:
        for attempt in session.steps(until=options.steps):
            for i in attempt.micro_batches:
                x, y = data.batch(order.ids(attempt.step, i))
                loss = functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
                loss.backward()


if __name__ == "__main__":
    main()
