#include "simulator/timeline/pipeline_program.hpp"

#include <array>

#include <fmt/core.h>

#include "plan/text/errors.hpp"

namespace mgplan::simulator {
namespace {

constexpr std::int32_t kNotRun = -1;

/// Indices of the ops that produce each result, by stage and microbatch.
class Results {
public:
    Results(int stages, std::int64_t microbatches) : microbatches_(static_cast<std::size_t>(microbatches)) {
        for (auto& of_pass : index_) of_pass.assign(static_cast<std::size_t>(stages) * microbatches_, kNotRun);
    }
    std::int32_t& forward(int stage, std::int32_t microbatch) { return index_[0][at(stage, microbatch)]; }
    std::int32_t& gradient(int stage, std::int32_t microbatch) { return index_[1][at(stage, microbatch)]; }

private:
    [[nodiscard]] std::size_t at(int stage, std::int32_t microbatch) const {
        return static_cast<std::size_t>(stage) * microbatches_ + static_cast<std::size_t>(microbatch);
    }
    std::size_t microbatches_;
    std::array<std::vector<std::int32_t>, 2> index_;
};

/// The result that an op needs, if any.
struct Input {
    bool needed = false;
    bool forward = true;
    int stage = 0;
};

Input input_of(const PipelineOp& op, int stage, int last) {
    switch (op.pass) {
        case Pass::forward:
            return {stage > 0, true, stage - 1};
        case Pass::backward:
        case Pass::input_gradient:
            return stage == last ? Input{true, true, stage} : Input{true, false, stage + 1};
        case Pass::weight_gradient:
            return {true, false, stage};
    }
    return {};
}

std::string where_stuck(const PipelineOrder& order, const std::vector<std::size_t>& at) {
    std::string text;
    int stuck = 0;
    for (std::size_t r = 0; r < at.size(); ++r) {
        if (at[r] == order.ranks[r].size()) continue;
        if (++stuck > 4) continue;
        const PipelineOp& op = order.ranks[r][at[r]];
        text += fmt::format("{}rank {} waits in front of entry {} ({} of chunk {}, microbatch {})", text.empty() ? "" : "; ", r, at[r],
                            to_string(op.pass), op.chunk, op.microbatch);
    }
    if (stuck > 4) text += fmt::format("; and {} more", stuck - 4);
    return text;
}

}  // namespace

PipelineProgram make_program(const PipelineOrder& order) {
    PipelineProgram program;
    program.pp = order.pp;
    program.chunks = order.chunks;
    std::size_t total = 0;
    for (const auto& rank : order.ranks) total += rank.size();
    MGPLAN_ASSERT(total <= static_cast<std::size_t>(kMostOrderOps) * 2, "the caller bounds the number of passes");
    program.ops.reserve(total);
    Results results(order.stages(), order.microbatches);
    const int last = order.stages() - 1;
    const auto ranks = static_cast<std::size_t>(order.pp);
    std::vector<std::size_t> at(ranks, 0);
    std::vector<bool> begun(ranks * static_cast<std::size_t>(order.chunks), false);
    std::vector<std::int32_t> last_gradient(begun.size(), -1);

    // Ranks that may continue. A blocked rank is queued again by the op that it waits for, which runs on a neighbour.
    std::vector<int> ready;
    for (int r = order.pp - 1; r >= 0; --r) ready.push_back(r);
    std::vector<char> queued(ranks, 1);
    const auto wake = [&](int rank) {
        if (queued[static_cast<std::size_t>(rank)]) return;
        queued[static_cast<std::size_t>(rank)] = 1;
        ready.push_back(rank);
    };
    while (!ready.empty()) {
        const int r = ready.back();
        ready.pop_back();
        queued[static_cast<std::size_t>(r)] = 0;
        const auto& list = order.ranks[static_cast<std::size_t>(r)];
        std::size_t& next = at[static_cast<std::size_t>(r)];
        while (next < list.size()) {
            const PipelineOp& op = list[next];
            const int stage = order.stage_of(r, op.chunk);
            const Input input = input_of(op, stage, last);
            ProgramOp made;
            if (input.needed) {
                made.input = input.forward ? results.forward(input.stage, op.microbatch) : results.gradient(input.stage, op.microbatch);
                if (made.input == kNotRun) break;
                made.remote = order.rank_of(input.stage) != r;
            }
            made.microbatch = op.microbatch;
            made.rank = static_cast<std::uint16_t>(r);
            made.chunk = static_cast<std::uint16_t>(op.chunk);
            made.pass = op.pass;
            const auto own = static_cast<std::size_t>(r) * static_cast<std::size_t>(order.chunks) + static_cast<std::size_t>(op.chunk);
            const auto index = static_cast<std::int32_t>(program.ops.size());
            if (op.pass == Pass::forward) {
                made.first_forward = !begun[own];
                begun[own] = true;
                results.forward(stage, op.microbatch) = index;
            }
            if (op.pass == Pass::backward || op.pass == Pass::weight_gradient) last_gradient[own] = index;
            if (op.pass == Pass::backward || op.pass == Pass::input_gradient) results.gradient(stage, op.microbatch) = index;
            if (op.pass != Pass::weight_gradient) {
                const int target = op.pass == Pass::forward ? stage + 1 : stage - 1;
                if (target >= 0 && target <= last) {
                    const int peer = order.rank_of(target);
                    made.sends = peer != r;
                    made.to_next = peer == (r + 1) % order.pp;
                    if (made.sends) wake(peer);
                }
            }
            program.ops.push_back(made);
            ++next;
        }
    }
    if (program.ops.size() != total) {
        program.deadlock = where_stuck(order, at);
        return program;
    }
    for (const std::int32_t index : last_gradient) {
        if (index >= 0) program.ops[static_cast<std::size_t>(index)].last_gradient = true;
    }
    return program;
}

}  // namespace mgplan::simulator
