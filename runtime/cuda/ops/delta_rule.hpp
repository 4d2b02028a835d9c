#pragma once
// See model/ops/delta_rule.hpp. The rule by chunks (arXiv 2412.06464, section 3): within a chunk new values come from products with the
// inverse of a unit lower triangular matrix, and states are carried from chunk to chunk. Products are batched ones of a library, a matrix
// for each chunk, sequence and head; kernels here run between them.
//
// For one chunk and head, with unit keys k_i, unit queries over the root of key_dim q_i, values v_i, strengths b_i and decays a_i whose
// logarithms are summed from the chunk's begin (with a decay for each channel each is a diagonal matrix between its factors):
//   A_ij = b_i exp(a_i - a_j) k_i · k_j for j < i,  M_ij = exp(a_i - a_j) q_i · k_j for j <= i,  X = (I + A)^-1
//   R = X (b v) - X (b exp(a) k) S          new values (`written`), S the state in front of the chunk
//   y = (exp(a) q) S + M R,  S' = exp(a_end) S + (exp(a_end - a) k)ᵀ R
// and back, from dy and the gradient dS' of the state after the chunk:
//   dR = Mᵀ dy + (exp(a_end - a) k) dS',  dS = exp(a_end) dS' + (exp(a) q)ᵀ dy - (X (b exp(a) k))ᵀ dR,  dZ = Xᵀ dR
//   d(b v) = dZ,  d(b exp(a) k) = -dZ Sᵀ,  d(exp(a) q) = dy Sᵀ,  d(exp(a_end - a) k) = R dS'ᵀ,  dA = -dZ Rᵀ,  dM = dy Rᵀ
// A summed decay's gradient is the dot product of its place's query with its gradient, plus that of the key as it reads, minus that of the
// key as it writes; the last place's also has those of the state after the chunk and of all keys that write to its end. Decays are
// taken from a chunk's begin to a place and subtracted, none as the exponential of a positive number: in fp32 one that resets a state amid
// weak ones costs the weak ones digits. Factors of products have the storage type, sums and the inversion the
// statistics': R and dR, which are added up in two products, are rounded after each. So is X for its products where strengths are at
// most 1. Where they reach 2 (negative eigenvalues), entries of X between like keys are about b, with changing signs, however far apart
// their places are, X (b exp(a) k) is a small difference of large sums, and of a rounded X states grow from chunk to chunk. There X is two
// matrices, the rounded one and what rounding left, rounded, and each product with it is two: the smaller first, to whose result the larger
// one adds.

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "model/ops/checks.hpp"
#include "model/ops/scratch.hpp"
#include "runtime/cuda/ops/batched_product.hpp"
#include "runtime/cuda/ops/column_sums.hpp"
#include "runtime/cuda/ops/launch.hpp"
#include "runtime/cuda/ops/rule_bodies.hpp"

namespace mgplan::runtime::cuda {

template <class Element, class Arguments>
RuleParts<Element> rule_parts(const Arguments& x) {
    return {x.sizes,
            values<Element>(x.x),
            values<Element>(x.gates),
            values<Element>(x.decays),
            values<Element>(x.step_bias),
            values<Element>(x.log_decay),
            x.gate_pitch,
            x.beta_begin,
            x.decay_pitch,
            x.decay_begin,
            values<Compute<Element>>(x.inverse_norms)};
}

/// The steps of a delta rule: kernels over blocks of chunks, products of their matrices, and a walk over their states.
template <class Launcher, class Element>
class RuleRun {
public:
    using Sum = Compute<Element>;
    RuleRun(Launcher& launcher, const RuleParts<Element>& rule, Dtype dtype, const model::RuleWorkspace& space, void* workspace)
        : launcher_(launcher),
          rule_(rule),
          s_(rule_.sizes),
          dtype_(dtype),
          space_(space),
          workspace_(static_cast<std::byte*>(workspace)),
          state_(s_.batch * s_.value_heads * s_.key_dim * s_.value_dim) {}

    /// `state`: one of each sequence and head, carried through all chunks.
    void forward(Sum* state, Element* y) const {
        zero(state);
        for (std::int64_t index = 0; index < space_.blocks; ++index) {
            const RuleBlock<Element> block = this->block(index);
            prepare(block);
            carry_states(block, state, state);
            const std::int64_t length = block.length;
            multiply({.m = length, .n = s_.value_dim, .k = s_.key_dim, .a_stride = 2 * map(block)}, block.reads, block.states,
                     block.outputs, block.teams());
            multiply({.m = length, .n = s_.value_dim, .k = length, .beta = 1}, block.weights, block.written, block.outputs, block.teams());
            each_value(block, address(y), RuleOutput<Element>{block, y});
        }
    }

    /// The states in front of all blocks first, then block by block from the last one. `rule` has the backward's parts.
    void backward() const {
        Sum* const slope = part<Sum>(space_.state_gradient);
        zero(front(0));
        zero(slope);
        for (std::int64_t index = 0; index + 1 < space_.blocks; ++index) {
            RuleBlock<Element> block = this->block(index);
            block.gradients = nullptr;
            prepare(block);
            carry_states(block, front(index), front(index + 1));
        }
        for (std::int64_t index = space_.blocks; index-- > 0;) {
            const RuleBlock<Element> block = this->block(index);
            prepare(block);
            carry_states(block, front(index), front(index + 1));
            carry_gradients(block, slope);
            take_gradients(block);
        }
    }

    [[nodiscard]] Sum* sums() const { return part<Sum>(space_.sums); }

private:
    template <class Value>
    [[nodiscard]] Value* part(std::int64_t begin) const {
        return begin < 0 ? nullptr : reinterpret_cast<Value*>(workspace_ + begin);
    }
    /// The state before block `index` in a backward; the index after the last block gives the final state.
    [[nodiscard]] Sum* front(std::int64_t index) const { return part<Sum>(space_.fronts) + index * state_; }
    void zero(Sum* state) const { launcher_.zero(state, state_ * static_cast<std::int64_t>(sizeof(Sum))); }
    [[nodiscard]] std::int64_t map(const RuleBlock<Element>& block) const { return block.length * s_.key_dim; }
    [[nodiscard]] std::int64_t line(const RuleBlock<Element>& block) const { return block.length * s_.value_dim; }

    [[nodiscard]] RuleBlock<Element> block(std::int64_t index) const {
        const bool last = space_.rest > 0 && index + 1 == space_.blocks;
        const std::int64_t first = last ? space_.whole : index * space_.block;
        RuleBlock<Element> made{rule_, first * space_.length, last ? 1 : std::min(space_.block, space_.whole - first),
                                last ? space_.rest : space_.length, first};
        made.strengths = part<Sum>(space_.strengths);
        made.decays = part<Sum>(space_.decays);
        made.units = part<Element>(space_.units);
        made.reads = part<Element>(space_.reads);
        made.left = part<Element>(space_.left);
        made.found = part<Element>(space_.found);
        made.values = part<Element>(space_.values);
        made.scores = part<Sum>(space_.scores);
        made.inverses = part<Element>(space_.inverses);
        made.remainders = part<Element>(space_.remainders);
        made.weights = part<Element>(space_.weights);
        made.states = part<Element>(space_.states);
        made.written = part<Element>(space_.written);
        made.outputs = part<Sum>(space_.outputs);
        made.gradients = part<Element>(space_.gradients);
        made.d_states = part<Element>(space_.d_states);
        made.along = part<Sum>(space_.along);
        made.pairs = part<Element>(space_.pairs);
        made.from_states = part<Sum>(space_.from_states);
        made.from_pairs = part<Sum>(space_.from_pairs);
        made.to_states = part<Sum>(space_.to_states);
        made.to_pairs = part<Sum>(space_.to_pairs);
        made.strength_sums = part<Sum>(space_.strength_sums);
        made.decay_sums = part<Sum>(space_.decay_sums);
        made.end_sums = part<Sum>(space_.end_sums);
        return made;
    }

    /// Computes all that does not depend on states: factors, inverses, X (b v) and -X (b exp(a) k).
    void prepare(const RuleBlock<Element>& block) const {
        const std::int64_t length = block.length, teams = block.teams();
        launcher_.teams(teams, lanes_for(length * s_.decays_of_head()), RuleDecays<Element>{block});
        launcher_.teams(block.rows() * s_.key_heads, lanes_for(s_.key_dim), RuleVectors<Element>{block});
        each_value(block, address(rule_.dy), RuleValues<Element>{block});
        if (s_.channel_decays) {
            launcher_.each(teams * length * length, RuleChannelScores<Element>{block});
        } else {
            // Those of a key head's first value head are those of all.
            const std::int64_t units = rule_.per_key() * 2 * map(block);
            multiply({.transpose_b = true, .m = 2 * length, .n = length, .k = s_.key_dim, .a_stride = units, .b_stride = units},
                     block.units, block.units, block.scores, block.matrices() * s_.key_heads);
        }
        launcher_.teams(teams, lanes_for(4 * length), RuleInverse<Element>{block});
        multiply_inverses({.m = length, .n = s_.key_dim, .k = length, .alpha = -1, .c_stride = 2 * map(block)}, block, block.found,
                          block.reads + map(block));
        multiply_inverses({.m = length, .n = s_.value_dim, .k = length}, block, block.values, block.written);
    }

    /// A chunk's states, rounded, and what it leaves of them, from `from` on in `to`.
    void carry(const RuleBlock<Element>& block, std::int64_t chunk, const Sum* from, Sum* to, Element* rounded) const {
        const std::uint64_t pitch = static_cast<std::uint64_t>(s_.value_dim) * sizeof(Element);
        each_pack<kPack<Element>>(launcher_, state_, pitch | address(from) | address(to) | address(rounded),
                                  RuleCarry<Element>{block, chunk * heads(), from, to, rounded});
    }
    [[nodiscard]] std::int64_t heads() const { return s_.batch * s_.value_heads; }

    /// `from`: the state before the block; `to` becomes that after it.
    void carry_states(const RuleBlock<Element>& block, const Sum* from, Sum* to) const {
        for (std::int64_t chunk = 0; chunk < block.count; ++chunk) {
            const std::int64_t first = chunk * heads();
            Element* const states = block.states + chunk * state_;
            Element* const written = block.written + first * line(block);
            carry(block, chunk, chunk == 0 ? from : to, to, states);
            multiply({.m = block.length, .n = s_.value_dim, .k = s_.key_dim, .beta = 1, .a_stride = 2 * map(block)},
                     block.reads + (2 * first + 1) * map(block), states, written, heads());
            multiply({.transpose_a = true, .m = s_.key_dim, .n = s_.value_dim, .k = block.length, .beta = 1},
                     block.left + first * map(block), written, to, heads());
        }
    }

    /// `slope`: the gradient of the state after the block becomes that of the state before it.
    void carry_gradients(const RuleBlock<Element>& block, Sum* slope) const {
        const std::int64_t lines = 3 * line(block);
        Element* const of_outputs = block.gradients + line(block);
        Element* const of_written = of_outputs + line(block);
        multiply({.transpose_a = true, .m = block.length, .n = s_.value_dim, .k = block.length, .b_stride = lines, .c_stride = lines},
                 block.weights, of_outputs, of_written, block.teams());
        for (std::int64_t chunk = block.count; chunk-- > 0;) {
            const std::int64_t first = chunk * heads();
            Element* const slopes = block.d_states + chunk * state_;
            carry(block, chunk, slope, slope, slopes);
            multiply({.m = block.length, .n = s_.value_dim, .k = s_.key_dim, .beta = 1, .c_stride = lines}, block.left + first * map(block),
                     slopes, of_written + first * lines, heads());
            // One product for both terms of dS: (exp(a) q; -X (b exp(a) k)) and (dy; dR) are each contiguous.
            multiply({.transpose_a = true, .m = s_.key_dim, .n = s_.value_dim, .k = 2 * block.length, .beta = 1, .b_stride = lines},
                     block.reads + first * 2 * map(block), of_outputs + first * lines, slope, heads());
        }
    }

    /// From gradients of new values and states to those of all inputs.
    void take_gradients(const RuleBlock<Element>& block) const {
        const std::int64_t length = block.length, teams = block.teams(), lines = 3 * line(block), maps = 2 * map(block);
        multiply_inverses({.transpose_a = true, .m = length, .n = s_.value_dim, .k = length, .b_stride = lines, .c_stride = lines}, block,
                          block.gradients + 2 * line(block), block.gradients);
        multiply({.transpose_b = true, .m = 2 * length, .n = length, .k = s_.value_dim, .a_stride = lines}, block.gradients, block.written,
                 block.along, teams);
        launcher_.teams(teams * length, lanes_for(length), RulePairs<Element>{block});
        multiply({.transpose_b = true, .m = 2 * length, .n = s_.key_dim, .k = s_.value_dim, .a_stride = lines}, block.gradients,
                 block.states, block.from_states, teams);
        multiply({.transpose_b = true, .m = length, .n = s_.key_dim, .k = s_.value_dim}, block.written, block.d_states, block.to_states,
                 teams);
        if (s_.channel_decays) {
            launcher_.each(teams * map(block), RuleChannelPairs<Element>{block});
        } else {
            multiply({.m = 2 * length, .n = s_.key_dim, .k = length, .b_stride = maps}, block.pairs, block.units, block.from_pairs, teams);
            multiply({.transpose_a = true, .m = length, .n = s_.key_dim, .k = 2 * length}, block.pairs, block.units, block.to_pairs, teams);
        }
        launcher_.teams(teams * length, lanes_for(s_.value_dim), RuleValueGradients<Element>{block});
        launcher_.teams(block.rows() * s_.key_heads, lanes_for(s_.key_dim), RuleVectorGradients<Element>{block});
        launcher_.teams(teams, lanes_for(s_.channel_decays ? s_.key_dim : s_.key_dim * s_.value_dim), RuleDecayGradients<Element>{block});
    }

    /// A body of packs over the values of all heads, which are read and written where they lie and at the address `other`.
    template <class Body>
    void each_value(const RuleBlock<Element>& block, std::uint64_t other, const Body& body) const {
        const auto pitches = static_cast<std::uint64_t>(s_.width() | 2 * s_.keys() | s_.value_dim) * sizeof(Element);
        each_pack<kPack<Element>>(launcher_, block.rows() * s_.values(), pitches | address(rule_.mixed) | address(workspace_) | other,
                                  body);
    }

    /// Multiplies by X or its transpose: by its rounding remainders first, so that the sum is rounded once.
    void multiply_inverses(BatchedProduct product, const RuleBlock<Element>& block, const Element* b, Element* c) const {
        if (block.remainders != nullptr) {
            multiply(product, block.remainders, b, c, block.teams());
            product.beta = 1;
        }
        multiply(product, block.inverses, b, c, block.teams());
    }

    template <class Result>
    void multiply(const BatchedProduct& product, const Element* a, const Element* b, Result* c, std::int64_t count) const {
        Gemm gemm = batched_gemm(product, dtype_, a, b, c, count);
        gemm.workspace = workspace_ + space_.library;
        gemm.workspace_bytes = space_.library_bytes;
        launcher_.gemm(gemm);
    }

    Launcher& launcher_;
    RuleParts<Element> rule_;
    model::DeltaRuleSizes s_;
    Dtype dtype_;
    const model::RuleWorkspace& space_;
    std::byte* workspace_;
    std::int64_t state_;  ///< values of all states of one place
};

template <class Launcher>
void delta_rule(model::Device& device, const model::DeltaRuleArguments& x) {
    auto&& launcher = Launcher::of(device);
    const auto space = model::rule_workspace(device.traits(), x.x.dtype, x.sizes, false);
    with_type(x.x.dtype, [&]<class Element>() {
        const RuleRun run(launcher, rule_parts<Element>(x), x.x.dtype, space, x.workspace.data);
        run.forward(values<Compute<Element>>(x.states), values<Element>(x.y));
    });
}

template <class Launcher>
void delta_rule_backward(model::Device& device, const model::DeltaRuleBackwardArguments& x) {
    auto&& launcher = Launcher::of(device);
    const model::DeltaRuleSizes& s = x.sizes;
    const auto space = model::rule_workspace(device.traits(), x.x.dtype, s, true);
    model::Output sums;
    with_type(x.x.dtype, [&]<class Element>() {
        using Sum = Compute<Element>;
        RuleParts<Element> rule = rule_parts<Element>(x);
        rule.dy = values<Element>(x.dy);
        rule.dx = values<Element>(x.dx);
        rule.d_gates = values<Element>(x.d_gates);
        rule.d_decays = values<Element>(x.d_decays);
        rule.unit_gradients = values<Sum>(x.unit_gradients);
        sums.data = rule.sums = reinterpret_cast<Sum*>(static_cast<std::byte*>(x.workspace.data) + space.sums);
        sums.dtype = model::statistics_dtype(x.x.dtype);
        const RuleRun run(launcher, rule, x.x.dtype, space, x.workspace.data);
        run.backward();
    });
    std::int64_t begin = 0;
    for (const model::Output* gradient : {&x.step_bias_gradient, &x.log_decay_gradient}) {
        const std::int64_t count = begin == 0 ? s.decays() : s.value_heads;
        add_column_sums(launcher, x.x.dtype, sums, begin, s.decays() + s.value_heads, space.chunks() * s.batch, count, *gradient);
        begin += count;
    }
}

}  // namespace mgplan::runtime::cuda
