"""A model of one's own, with a tied weight and a bf16 layer, trained in a plain loop.

Start a NATS server, then the first learner, which opens the run; then a syncer:
python examples/plain_loop.py run.toml a        (b, c, ... from other terminals)
decodiloco syncer --config run.toml --id s
"""

import sys

import torch
from torch import nn

import decodiloco
from streams.errors import StreamExists

config, learner = sys.argv[1:3]
torch.manual_seed(0)
words, hidden = nn.Embedding(64, 32), nn.Linear(32, 32, dtype=torch.bfloat16)
head = nn.Linear(32, 64, bias=False)
head.weight = words.weight  # tied: one tensor of the run
model = nn.ModuleList([words, hidden, head])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

try:
    decodiloco.open_run(config, model)
except StreamExists:
    print("the run is open already")

with decodiloco.join(config, learner=learner, model=model, optimizer=optimizer) as session:
    chance = torch.Generator().manual_seed(session.slot)
    while not session.finished:
        text = torch.randint(0, 64, (16,), generator=chance)
        guess = head(torch.relu(hidden(words(text).bfloat16())).float())
        loss = nn.functional.cross_entropy(guess, (text + 1) % 64)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        session.step(tokens=text.numel(), loss=loss.detach(), cursor=session.clock.step)
    print(f"learner {learner} finished: loss {float(loss.detach()):.3f}, {session.clock}")
