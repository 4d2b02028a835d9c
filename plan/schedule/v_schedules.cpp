#include "plan/schedule/v_schedules.hpp"

#include <algorithm>
#include <array>
#include <deque>

#include "plan/text/errors.hpp"

namespace mgplan {
namespace {

/// The passes of one microbatch on one rank in the order in which they depend on each other; the weight gradients come after.
enum Step : std::uint8_t { forward_down, forward_up, gradient_down, gradient_up };
constexpr int kSteps = 4;
constexpr std::int64_t kInterval = 6;  ///< slots between microbatches: four steps and two weight gradients of equal length

/// Slot of each step of microbatch 0.
using Block = std::array<std::int64_t, kSteps>;

/// Gradients go through the stages backwards: down the V through chunk 1, and up again through chunk 0.
bool goes_down(int step) {
    return step == forward_down || step == gradient_down;
}

/// Places of everything that one rank does in slots of equal length.
class Rank {
public:
    Rank(const Block& block, std::int64_t microbatches) {
        const std::int64_t slots = block.back() + kInterval * microbatches + 2 * microbatches + 1;
        taken_.assign(static_cast<std::size_t>(slots), kFree);
        for (int step = 0; step < kSteps; ++step) {
            for (std::int64_t i = 0; i < microbatches; ++i) {
                const std::int64_t slot = block[static_cast<std::size_t>(step)] + kInterval * i;
                MGPLAN_ASSERT(at(slot) == kFree, "steps of a building block do not collide");
                at(slot) = static_cast<std::int8_t>(step);
                slots_[static_cast<std::size_t>(step)].push_back(slot);
            }
        }
        put_weight_gradients(microbatches);
        planned_ = taken_;
        live_.resize(taken_.size());
        std::int64_t live = 0;
        for (std::size_t s = 0; s < taken_.size(); ++s) {
            live += taken_[s] == forward_down || taken_[s] == forward_up ? 1 : 0;
            live -= taken_[s] == kWeight ? 1 : 0;
            live_[s] = live;
            peak_ = std::max(peak_, live);
        }
    }

    static constexpr std::int8_t kFree = -1, kWeight = kSteps;

    [[nodiscard]] std::int64_t slots() const { return static_cast<std::int64_t>(taken_.size()); }
    [[nodiscard]] std::int64_t peak() const { return peak_; }
    /// The step in a slot before any moves.
    [[nodiscard]] int planned(std::int64_t slot) const { return planned_[static_cast<std::size_t>(slot)]; }
    [[nodiscard]] const std::vector<std::int64_t>& slots_of(int step) const { return slots_[static_cast<std::size_t>(step)]; }
    /// Everything in the order of its slots.
    [[nodiscard]] const std::vector<std::int8_t>& taken() const { return taken_; }

    /// The next pass of `step`, or weight gradient, moves from `slot` to the first free one from `earliest` on where no more
    /// than `most` chunks become live.
    void advance(int step, std::int64_t slot, std::int64_t earliest, std::int64_t most) {
        std::int64_t best = slot;
        const bool holds = step == forward_down || step == forward_up;
        for (std::int64_t s = slot - 1; s >= earliest; --s) {
            if (holds && live_[static_cast<std::size_t>(s)] + 1 > most) break;
            if (at(s) == kFree) best = s;
        }
        const int change = holds ? 1 : step == kWeight ? -1 : 0;
        for (std::int64_t s = best; s < slot; ++s) live_[static_cast<std::size_t>(s)] += change;
        at(slot) = kFree;
        at(best) = static_cast<std::int8_t>(step);
        if (step == kWeight) {
            ++weights_;
            return;
        }
        slots_[static_cast<std::size_t>(step)][static_cast<std::size_t>(next_[static_cast<std::size_t>(step)]++)] = best;
        if (step == gradient_down || step == gradient_up)
            gradients_.insert(std::upper_bound(gradients_.begin(), gradients_.end(), best), best);
    }
    /// Microbatch of the next pass of `step`.
    [[nodiscard]] std::int64_t next(int step) const { return next_[static_cast<std::size_t>(step)]; }
    /// Slot of the input gradient that the next weight gradient follows.
    [[nodiscard]] std::int64_t behind_gradient() const { return gradients_[weights_]; }

private:
    std::int8_t& at(std::int64_t slot) { return taken_[static_cast<std::size_t>(slot)]; }

    /// Puts each into the first free slot after its input gradient.
    void put_weight_gradients(std::int64_t microbatches) {
        std::int64_t waiting = 0, made = 0;
        for (std::int64_t s = 0; made < 2 * microbatches; ++s) {
            if (at(s) == gradient_down || at(s) == gradient_up) {
                ++waiting;
            } else if (at(s) == kFree && waiting > 0) {
                at(s) = kWeight;
                --waiting;
                ++made;
            }
        }
    }

    std::vector<std::int8_t> taken_, planned_;
    std::vector<std::int64_t> live_;
    std::array<std::vector<std::int64_t>, kSteps> slots_;
    std::array<std::int64_t, kSteps> next_{};
    std::vector<std::int64_t> gradients_;  ///< slots of input gradients that have found their place, sorted
    std::size_t weights_ = 0;
    std::int64_t peak_ = 0;
};

/// First slot in which a step may run: after the same step on the previous rank, after the previous step, and after its own last
/// microbatch.
std::int64_t earliest_slot(const std::vector<Rank>& ranks, std::size_t r, int step) {
    const auto microbatch = static_cast<std::size_t>(ranks[r].next(step));
    std::int64_t behind = -1;
    if (goes_down(step) && r > 0) behind = ranks[r - 1].slots_of(step)[microbatch];
    if (!goes_down(step) && r + 1 < ranks.size()) behind = ranks[r + 1].slots_of(step)[microbatch];
    if (step > 0) behind = std::max(behind, ranks[r].slots_of(step - 1)[microbatch]);
    if (microbatch > 0) behind = std::max(behind, ranks[r].slots_of(step)[microbatch - 1]);
    return behind + 1;
}

/// The order of steps that the slots give, run once more with weight gradients as filling: a step whose input is there goes
/// first, unless it is a forward for which there is no room before a weight gradient.
void fill(PipelineOrder& order, const std::vector<Rank>& ranks, std::int64_t most) {
    const auto pp = ranks.size();
    const auto microbatches = static_cast<std::size_t>(order.microbatches);
    constexpr std::int64_t kNotYet = -1;
    struct State {
        std::vector<std::int8_t> steps;
        std::size_t at = 0;
        std::array<std::vector<std::int64_t>, kSteps> done;
        std::array<std::size_t, kSteps> next{};
        std::deque<PipelineOp> waiting;  ///< weight gradients
        std::int64_t live = 0;
    };
    std::vector<State> states(pp);
    for (std::size_t r = 0; r < pp; ++r) {
        for (const std::int8_t entry : ranks[r].taken()) {
            if (entry != Rank::kFree && entry != Rank::kWeight) states[r].steps.push_back(entry);
        }
        for (auto& done : states[r].done) done.assign(microbatches, kNotYet);
    }
    std::size_t left = pp * 6 * microbatches;
    for (std::int64_t now = 0; left > 0; ++now) {
        for (std::size_t r = 0; r < pp; ++r) {
            State& state = states[r];
            const auto make_weight_gradient = [&] {
                order.ranks[r].push_back(state.waiting.front());
                state.waiting.pop_front();
                --state.live;
                --left;
            };
            if (state.at == state.steps.size()) {
                if (!state.waiting.empty()) make_weight_gradient();
                continue;
            }
            const int step = static_cast<std::uint8_t>(state.steps[state.at]);
            const auto index = static_cast<std::size_t>(step);
            const std::size_t microbatch = state.next[index];
            const bool forward = step == forward_down || step == forward_up;
            bool ready = true;
            const auto behind = [&](const State& other, int of) {
                const std::int64_t done = other.done[static_cast<std::size_t>(of)][microbatch];
                ready = ready && done != kNotYet && done <= now;
            };
            if (goes_down(step) && r > 0) behind(states[r - 1], step);
            if (!goes_down(step) && r + 1 < pp) behind(states[r + 1], step);
            if (step > 0) behind(state, step - 1);
            const bool room = !forward || state.live < most;
            if ((!ready || !room) && !state.waiting.empty()) {
                make_weight_gradient();
                continue;
            }
            if (!ready) continue;
            const auto chunk = static_cast<std::int16_t>(step == forward_up || step == gradient_down ? 1 : 0);
            const PipelineOp op{forward ? Pass::forward : Pass::input_gradient, chunk, static_cast<std::int32_t>(microbatch)};
            order.ranks[r].push_back(op);
            state.done[index][microbatch] = now + 1;
            ++state.next[index];
            ++state.at;
            --left;
            if (forward)
                ++state.live;
            else
                state.waiting.push_back({Pass::weight_gradient, chunk, op.microbatch});
        }
    }
}

/// Repeats the blocks, moves everything to the front as far as dependencies and the block's own peak allow, and fills.
PipelineOrder repeat(int pp, std::int64_t microbatches, const std::vector<Block>& blocks) {
    PipelineOrder order;
    order.pp = pp;
    order.chunks = 2;
    order.microbatches = microbatches;
    order.v_shaped = true;
    order.ranks.resize(static_cast<std::size_t>(pp));
    std::vector<Rank> ranks;
    std::int64_t most = 0, slots = 0;
    for (const Block& block : blocks) {
        ranks.emplace_back(block, microbatches);
        most = std::max(most, ranks.back().peak());
        slots = std::max(slots, ranks.back().slots());
    }
    for (std::int64_t slot = 0; slot < slots; ++slot) {
        for (std::size_t r = 0; r < ranks.size(); ++r) {
            if (slot >= ranks[r].slots() || ranks[r].planned(slot) == Rank::kFree) continue;
            const int step = ranks[r].planned(slot);
            const std::int64_t earliest = step == Rank::kWeight ? ranks[r].behind_gradient() + 1 : earliest_slot(ranks, r, step);
            ranks[r].advance(step, slot, earliest, most);
        }
    }
    fill(order, ranks, most);
    return order;
}

}  // namespace

// The blocks are figure 3 of the paper. The pause in front of the gradients keeps the four steps of a rank in different
// slots modulo six.
PipelineOrder v_half(int pp, std::int64_t microbatches) {
    const std::int64_t p = pp, pause = pp % 2 == 0 ? 3 : 0;
    std::vector<Block> blocks;
    for (std::int64_t r = 0; r < p; ++r) blocks.push_back({2 * r, 3 * p - r - 2, 3 * p + pause + 2 * r - 1, 6 * p + pause - r - 2});
    return repeat(pp, microbatches, blocks);
}

PipelineOrder v_min(int pp, std::int64_t microbatches) {
    const std::int64_t p = pp, pause = pp % 3 == 0 ? 2 : 0;
    std::vector<Block> blocks;
    for (std::int64_t r = 0; r < p; ++r) blocks.push_back({r, 2 * p - r - 1, 2 * p + pause + r, 4 * p + pause - r - 1});
    return repeat(pp, microbatches, blocks);
}

}  // namespace mgplan
