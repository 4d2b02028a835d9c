#pragma once
// Arguments of the kernels of state-space layers and gated delta nets (model/ops/kernel_table.hpp).

#include <cstdint>

#include "model/ops/kernel_operands.hpp"
#include "model/ops/state_space_sizes.hpp"

namespace mgplan::model {

/// x: channels [x_begin, x_begin + channels) of rows of x_pitch values; dx lies the same way in rows of its own.
struct CausalConvArguments {
    Input x, weight, bias;
    Output y;
    std::int64_t places, batch, channels, taps, x_pitch, x_begin;
};

/// column_sums: scratch (parts, taps + 1, channels) in the statistics' type.
struct CausalConvBackwardArguments {
    Input dy, x, weight, bias;
    Output dx, weight_gradient, bias_gradient, column_sums;
    std::int64_t places, batch, channels, taps, x_pitch, x_begin;
    std::int64_t parts = 1;
};

/// projected (rows, 3 · width): B, C, x; weight (width, taps).
struct ShortConvArguments {
    Input projected, weight;
    Output y;
    std::int64_t places, batch, width, taps;
};

/// column_sums: scratch (parts, width, taps) in the statistics' type.
struct ShortConvBackwardArguments {
    Input dy, projected, weight;
    Output d_projected, weight_gradient, column_sums;
    std::int64_t places, batch, width, taps;
    std::int64_t parts = 1;
};

/// gate: columns [gate_begin, gate_begin + width) of rows of gate_pitch. weight (weight_width), a multiple of which `width` is; absent:
/// no norm, inverse_deviation absent too. `group` values share a norm.
struct GatedNormArguments {
    Input x, gate, weight;
    Output y, inverse_deviation;
    std::int64_t rows, width, group, weight_width, gate_pitch, gate_begin;
    bool gate_first, sigmoid_gate;
    double epsilon;
};

/// d_gate lies as gate does. column_sums: scratch (parts, weight_width) in the statistics' type.
struct GatedNormBackwardArguments {
    Input dy, x, gate, weight, inverse_deviation;
    Output dx, d_gate, weight_gradient, column_sums;
    std::int64_t rows, width, group, weight_width, gate_pitch, gate_begin;
    bool gate_first, sigmoid_gate;
    std::int64_t parts = 1;
};

/// x (rows, StateSpaceSizes::width()); the raw steps are columns [step_begin, step_begin + heads) of rows of step_pitch. Scratch in the
/// statistics' type: steps and decays (rows, heads), states (chunks, batch, heads, head_dim, state), on GPUs scores (rows, groups, chunk),
/// and a workspace as scan_workspace() (model/ops/scratch.hpp) lays it out.
struct StateSpaceArguments {
    Input x, raw_steps, step_bias, log_decay, skip;
    Output y, steps, decays, states;
    StateSpaceSizes sizes;
    std::int64_t step_pitch, step_begin;
    Output scores{}, workspace{};
};

/// d_raw_steps lies as raw_steps does. Scratch as above, and state_gradients as states, sums (chunks · batch, 3, heads), on GPUs
/// pair_sums (rows, the larger of groups · chunk and 3 · heads).
struct StateSpaceBackwardArguments {
    Input dy, x, raw_steps, step_bias, log_decay, skip;
    Output dx, d_raw_steps, step_bias_gradient, log_decay_gradient, skip_gradient;
    Output steps, decays, states, state_gradients, sums;
    StateSpaceSizes sizes;
    std::int64_t step_pitch, step_begin;
    Output scores{}, pair_sums{}, workspace{};
};

/// x (rows, DeltaRuleSizes::width()); `gates` holds columns of the value heads' raw writing strengths from beta_begin in rows of
/// gate_pitch, `decays` those of the raw decays from decay_begin in rows of decay_pitch. Scratch in the statistics' type: inverse_norms
/// (rows, 2, key_heads), states (batch, value_heads, key_dim, value_dim); on the CPU with a decay for each channel `kept` (rows, decays);
/// on GPUs a workspace as rule_workspace() (model/ops/scratch.hpp) lays it out.
struct DeltaRuleArguments {
    Input x, gates, decays, step_bias, log_decay;
    Output y, inverse_norms, kept, states;
    DeltaRuleSizes sizes;
    std::int64_t gate_pitch, beta_begin, decay_pitch, decay_begin;
    Output workspace{};
};

/// Scratch of a delta rule that walks place by place, in values of the statistics' type. Forward and backward have `kept`; the backward
/// also has, for each sequence and key head, chunk_states (chunks, key_dim, value_dim), place_states (chunk, key_dim, value_dim),
/// state_gradients (key_dim, value_dim) and vectors (3, value_dim); and sums (batch, decays + value_heads).
struct DeltaRuleWalk {
    std::int64_t kept, chunk_states, place_states, state_gradients, vectors, sums;
    explicit DeltaRuleWalk(const DeltaRuleSizes& s)
        : kept(s.channel_decays ? s.rows() * s.decays() : 0),
          chunk_states(s.batch * s.key_heads * s.chunks() * s.key_dim * s.value_dim),
          place_states(s.batch * s.key_heads * s.chunk * s.key_dim * s.value_dim),
          state_gradients(s.batch * s.key_heads * s.key_dim * s.value_dim),
          vectors(s.batch * s.key_heads * 3 * s.value_dim),
          sums(s.batch * (s.decays() + s.value_heads)) {}
};

/// d_gates lies as gates does, d_decays as decays. Scratch: inverse_norms as above, unit_gradients (rows, 2, key_heads, key_dim); on the
/// CPU the sizes of a DeltaRuleWalk, on GPUs a workspace as above.
struct DeltaRuleBackwardArguments {
    Input dy, x, gates, decays, step_bias, log_decay;
    Output dx, d_gates, d_decays, step_bias_gradient, log_decay_gradient;
    Output inverse_norms, kept, chunk_states, place_states, state_gradients, vectors, unit_gradients, sums;
    DeltaRuleSizes sizes;
    std::int64_t gate_pitch, beta_begin, decay_pitch, decay_begin;
    Output workspace{};
};

}  // namespace mgplan::model
