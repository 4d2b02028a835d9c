#pragma once
// See model/ops/state_space.hpp; the formulas are those of runtime/cpu/ops/state_space.cpp, with the gradient of the decays from sums
// over a row: what a place reads minus what later places read of it. What they multiply goes through batched products of a library, a
// matrix for each chunk, sequence, and head or group of heads (state-space duality, arXiv 2405.21060, section 6); kernels here weigh with
// decays in between.

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "model/ops/checks.hpp"
#include "model/ops/scratch.hpp"
#include "runtime/cuda/ops/batched_product.hpp"
#include "runtime/cuda/ops/column_sums.hpp"
#include "runtime/cuda/ops/launch.hpp"
#include "runtime/cuda/ops/scan_bodies.hpp"

namespace mgplan::runtime::cuda {

template <class Element, class Arguments>
ScanParts<Element> scan_parts(const Arguments& x) {
    using Sum = Compute<Element>;
    return {x.sizes,
            values<Element>(x.x),
            values<Element>(x.raw_steps),
            values<Element>(x.step_bias),
            values<Element>(x.log_decay),
            values<Element>(x.skip),
            x.step_pitch,
            x.step_begin,
            values<Sum>(x.steps),
            values<Sum>(x.decays),
            values<Sum>(x.states),
            values<Sum>(x.scores)};
}

/// The steps of a scan: kernels over blocks of chunks, and products of their matrices.
template <class Launcher, class Element>
class ScanRun {
public:
    using Sum = Compute<Element>;
    ScanRun(Launcher& launcher, const ScanParts<Element>& scan, Dtype dtype, const model::ScanWorkspace& space, void* workspace)
        : launcher_(launcher), scan_(scan), s_(scan_.sizes), dtype_(dtype), space_(space), workspace_(static_cast<std::byte*>(workspace)) {}

    /// Computes steps, decays and the states before the chunks; in a backward also the gradients of the states after them.
    void start() const {
        const bool backward = scan_.dy != nullptr;
        launcher_.teams(s_.chunks() * s_.batch * s_.heads, lanes_for(4 * space_.length), ScanSteps<Element>{scan_});
        each_block([&](ScanBlock<Element> block) {
            block.values = block.slopes = nullptr;
            write_operands(block);
            const std::int64_t at = block.states_at(), groups = block.matrices() * s_.groups;
            multiply({true, false, of_group(), s_.state, block.length}, block.left, block.writes, scan_.states + at, groups);
            if (backward)
                multiply({true, false, of_group(), s_.state, block.length}, block.reached, block.reads, scan_.state_gradients + at, groups);
        });
        const std::int64_t values = s_.batch * s_.inner() * s_.state;
        launcher_.each(values, ScanStates<Element>{scan_, scan_.states, false});
        if (backward) launcher_.each(values, ScanStates<Element>{scan_, scan_.state_gradients, true});
    }

    void forward(Element* y) const {
        each_block([&](ScanBlock<Element> block) {
            block.left = nullptr;
            write_operands(block);
            read(block);
            each_value(block, address(y), ScanOutput<Element>{block, y});
        });
    }

    void backward(Element* dx) const {
        each_block([&](const ScanBlock<Element>& block) {
            const std::int64_t groups = block.matrices() * s_.groups, length = block.length, state = s_.state;
            write_operands(block);
            multiply({false, true, length, length, s_.head_dim}, block.slopes, block.values, block.along, block.matrices() * s_.heads);
            const Element* const states = read(block);
            multiply({true, false, length, s_.head_dim, length}, block.weights, block.slopes, block.inner, block.matrices() * s_.heads);
            const Element* const gradients = rounded(block, scan_.state_gradients, space_.d_states);
            multiply({false, true, length, of_group(), state}, block.writes, gradients, block.to_states, groups);
            multiply({false, false, length, state, length}, block.pairs, block.writes, block.d_reads, groups);
            multiply({false, false, length, state, of_group()}, block.reached, states, block.d_reads, groups, 1);
            multiply({true, false, length, state, length}, block.pairs, block.reads, block.d_writes, groups);
            multiply({false, false, length, state, of_group()}, block.left, gradients, block.d_writes, groups, 1);
            launcher_.each(groups * length * state, ScanMapGradients<Element>{block, dx});
            launcher_.teams(block.rows() * s_.heads, lanes_for(s_.head_dim), ScanValueGradients<Element>{block, dx});
        });
    }

private:
    [[nodiscard]] std::int64_t of_group() const { return scan_.per_group() * s_.head_dim; }

    template <class Work>
    void each_block(Work work) const {
        const std::int64_t whole = s_.places / space_.length;
        for (std::int64_t first = 0; first < whole; first += space_.block)
            work(block(first, std::min(space_.block, whole - first), space_.length));
        if (const std::int64_t rest = s_.places - whole * space_.length; rest > 0) work(block(whole, 1, rest));
    }

    [[nodiscard]] ScanBlock<Element> block(std::int64_t first, std::int64_t count, std::int64_t length) const {
        const auto part = [&]<class Value>(Value*& to, std::int64_t begin) {
            if (begin >= 0) to = reinterpret_cast<Value*>(workspace_ + begin);
        };
        ScanBlock<Element> made{scan_, first, count, length};
        part(made.writes, space_.writes);
        part(made.reads, space_.reads);
        part(made.values, space_.values);
        part(made.slopes, space_.slopes);
        part(made.left, space_.left);
        part(made.reached, space_.reached);
        part(made.weights, space_.weights);
        part(made.pairs, space_.pairs);
        part(made.of_states, space_.of_states);
        part(made.to_states, space_.to_states);
        part(made.along, space_.along);
        part(made.within, space_.within);
        part(made.inner, space_.inner);
        part(made.d_writes, space_.d_writes);
        part(made.d_reads, space_.d_reads);
        return made;
    }

    void write_operands(const ScanBlock<Element>& block) const {
        launcher_.each(block.rows() * s_.groups * s_.state, ScanMaps<Element>{block});
        each_value(block, address(scan_.dy), ScanValues<Element>{block});
    }

    /// A body of packs over the values of all heads, which are read and written where they lie and at the address `other`.
    template <class Body>
    void each_value(const ScanBlock<Element>& block, std::uint64_t other, const Body& body) const {
        const auto pitches = static_cast<std::uint64_t>(s_.width() | s_.head_dim) * sizeof(Element);
        each_pack<kPack<Element>>(launcher_, block.rows() * s_.inner(), pitches | address(scan_.mixed) | address(workspace_) | other, body);
    }

    /// Computes the weights and what all places read of their chunks and of the states before these; returns those states as factors.
    const Element* read(const ScanBlock<Element>& block) const {
        const std::int64_t groups = block.matrices() * s_.groups, length = block.length;
        multiply({false, true, length, length, s_.state}, block.reads, block.writes, block.scores(), groups);
        launcher_.each(groups * length * length, ScanWeights<Element>{block});
        const Element* const states = rounded(block, scan_.states, space_.states);
        multiply({false, true, length, of_group(), s_.state}, block.reads, states, block.of_states, groups);
        multiply({false, false, length, s_.head_dim, length}, block.weights, block.values, block.within, block.matrices() * s_.heads);
        return states;
    }

    const Element* rounded(const ScanBlock<Element>& block, const Sum* states, std::int64_t begin) const {
        if constexpr (std::is_same_v<Element, Sum>) {
            return states + block.states_at();
        } else {
            auto* const to = reinterpret_cast<Element*>(workspace_ + begin);
            const Sum* const from = states + block.states_at();
            each_pack<kPack<Element>>(launcher_, block.matrices() * s_.inner() * s_.state, address(from) | address(to),
                                      RoundStates<Element>{from, to});
            return to;
        }
    }

    /// Multiplies `count` contiguous matrices.
    void multiply(BatchedProduct product, const Element* a, const Element* b, Sum* c, std::int64_t count, double beta = 0) const {
        product.beta = beta;
        Gemm gemm = batched_gemm(product, dtype_, a, b, c, count);
        gemm.workspace = workspace_ + space_.library;
        gemm.workspace_bytes = space_.library_bytes;
        launcher_.gemm(gemm);
    }

    Launcher& launcher_;
    ScanParts<Element> scan_;
    model::StateSpaceSizes s_;
    Dtype dtype_;
    const model::ScanWorkspace& space_;
    std::byte* workspace_;
};

template <class Launcher>
void state_space_scan(model::Device& device, const model::StateSpaceArguments& x) {
    auto&& launcher = Launcher::of(device);
    const auto space = model::scan_workspace(device.traits(), x.x.dtype, x.sizes, false);
    with_type(x.x.dtype, [&]<class Element>() {
        const ScanRun run(launcher, scan_parts<Element>(x), x.x.dtype, space, x.workspace.data);
        run.start();
        run.forward(values<Element>(x.y));
    });
}

template <class Launcher>
void state_space_scan_backward(model::Device& device, const model::StateSpaceBackwardArguments& x) {
    auto&& launcher = Launcher::of(device);
    const model::StateSpaceSizes& s = x.sizes;
    const auto space = model::scan_workspace(device.traits(), x.x.dtype, s, true);
    with_type(x.x.dtype, [&]<class Element>() {
        using Sum = Compute<Element>;
        ScanParts<Element> scan = scan_parts<Element>(x);
        scan.dy = values<Element>(x.dy);
        scan.state_gradients = values<Sum>(x.state_gradients);
        scan.pair_sums = values<Sum>(x.pair_sums);
        const ScanRun run(launcher, scan, x.x.dtype, space, x.workspace.data);
        run.start();
        run.backward(values<Element>(x.dx));
        if (s.fixed.used()) return;
        launcher.teams(s.chunks() * s.batch * s.heads, lanes_for(4 * space.length),
                       ScanStepGradients<Element>{scan, values<Element>(x.d_raw_steps), values<Sum>(x.sums)});
    });
    if (s.fixed.used()) return;
    std::int64_t begin = 0;
    for (const model::Output* gradient : {&x.step_bias_gradient, &x.log_decay_gradient, &x.skip_gradient}) {
        add_column_sums(launcher, x.x.dtype, x.sums, begin, 3 * s.heads, s.chunks() * s.batch, s.heads, *gradient);
        begin += s.heads;
    }
}

}  // namespace mgplan::runtime::cuda
