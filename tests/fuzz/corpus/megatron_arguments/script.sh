#!/bin/bash
# made up
export LAYERS=4 
local H=512; SEQ=${SEQ:-64}
X=$(hostname)
MODEL_ARGS=(
  --num-layers $LAYERS --hidden-size ${H}
  "--seq-length $SEQ" # why
  --num-attention-heads '8' --vocab-size 1000 \
  ${OTHER[@]}
)
OLD="
 --bf16 \
 --swiglu"
torchrun pretrain_gpt.py "${MODEL_ARGS[@]}" $OLD
