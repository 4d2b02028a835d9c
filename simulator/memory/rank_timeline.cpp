#include "simulator/memory/rank_timeline.hpp"

#include <algorithm>

#include "model/communicator/recording_communicator.hpp"
#include "model/meta/meta_device.hpp"
#include "plan/layout/stage_ranks.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::simulator {
namespace {

/// Streams between stages are outputs of layers.
constexpr auto kMessage = static_cast<std::size_t>(model::MemoryCategory::activations);

/// Number of open sends on one channel: tensors in transit to another stage.
class Outbox {
public:
    explicit Outbox(std::int64_t depth) : depth_(depth) {}
    /// Returns the increase in open messages when one more is sent: 0 if there are `depth` already, because the oldest is then done.
    std::int64_t push() {
        if (open_ == depth_) return 0;
        ++open_;
        return 1;
    }
    [[nodiscard]] std::int64_t open() const { return open_; }

private:
    std::int64_t depth_, open_ = 0;
};

/// Outboxes of a rank: forward and backward, in a V separate for each chunk.
class Outboxes {
public:
    Outboxes(const model::SendDepth& depth, bool v_shaped)
        : v_shaped_(v_shaped), forward_(2, Outbox(depth.forward)), backward_(2, Outbox(depth.backward)) {}
    Outbox& of(bool forward, std::size_t chunk) { return (forward ? forward_ : backward_)[v_shaped_ ? chunk : 0]; }
    [[nodiscard]] std::int64_t open() const {
        std::int64_t sum = 0;
        for (const auto* boxes : {&forward_, &backward_}) {
            for (const Outbox& box : *boxes) sum += box.open();
        }
        return sum;
    }

private:
    bool v_shaped_;
    std::vector<Outbox> forward_, backward_;
};

/// Accumulates the memory of a step.
class StepPlayer {
public:
    StepPlayer(const BytesByCategory& held, RankTimeline& timeline) : timeline_(timeline) {
        model::MemoryUse& use = timeline_.use;
        use.current = use.high_water = use.at_peak = held;
        use.peak = live_ = sum(held);
    }

    [[nodiscard]] std::int64_t live() const { return live_; }

    /// Returns the op's timeline entry before it runs.
    [[nodiscard]] TimelineOp look(const OpProfile& profile) const {
        TimelineOp op;
        op.live = live_;
        op.peak = live_ + profile.peak;
        op.at_begin = timeline_.use.current;
        for (std::size_t i = 0; i < op.at_peak.size(); ++i) op.at_peak[i] = op.at_begin[i] + profile.at_peak[i];
        op.tensor = profile.peak_tensor;
        return op;
    }

    void run(const OpProfile& profile, StepPart part, std::int64_t op = -1) {
        model::MemoryUse& use = timeline_.use;
        for (std::size_t i = 0; i < use.high_water.size(); ++i)
            use.high_water[i] = std::max(use.high_water[i], use.current[i] + profile.high_water[i]);
        if (live_ + profile.peak > use.peak) {
            use.peak = live_ + profile.peak;
            for (std::size_t i = 0; i < use.at_peak.size(); ++i) use.at_peak[i] = use.current[i] + profile.at_peak[i];
            timeline_.peak_op = op;
            timeline_.peak_part = part;
            timeline_.peak_tensor = profile.peak_tensor;
        }
        for (std::size_t i = 0; i < use.current.size(); ++i) use.current[i] += profile.net[i];
        live_ += profile.net_total();
    }

    /// Adds the bytes of messages that stay alive; negative: messages that are done.
    void keep(std::int64_t bytes) {
        timeline_.use.current[kMessage] += bytes;
        live_ += bytes;
    }

private:
    RankTimeline& timeline_;
    std::int64_t live_ = 0;
};

}  // namespace

RankSchedule once_through(int vpp, bool divided) {
    RankSchedule schedule;
    for (int c = 0; c < vpp; ++c) schedule.ops.push_back({Pass::forward, static_cast<std::int16_t>(c), 0});
    for (int c = vpp - 1; c >= 0; --c) {
        schedule.ops.push_back({divided ? Pass::input_gradient : Pass::backward, static_cast<std::int16_t>(c), 0});
        if (divided) schedule.ops.push_back({Pass::weight_gradient, static_cast<std::int16_t>(c), 0});
    }
    return schedule;
}

RankProbe probe_rank(const model::TrainingTask& task, int pp_rank, const model::KernelTraits& stands_for) {
    const Layout& layout = task.layout;
    model::MetaDevice device({.keep_allocations = true, .keep_ops = false, .stands_for = stands_for});
    const int rank = static_cast<int>(first_rank_of_stage(layout.sizes, pp_rank));
    model::RankTrainer trainer(task, device, model::recording_world(rank, static_cast<int>(layout.sizes.world)));
    RankProbe probe;
    probe.held = device.memory().current;
    const std::int64_t begin = device.clock();
    (void)trainer.step([](std::int64_t, std::span<std::int32_t>) {}, 0, once_through(layout.vpp, layout.schedule.has_value()), 1);
    const std::int64_t end = device.clock();

    const auto vpp = static_cast<std::size_t>(layout.vpp);
    probe.forward.resize(vpp);
    probe.backward.resize(vpp);
    if (layout.schedule) probe.weights.resize(vpp);
    const LayoutSchedule schedule(layout);
    probe.v_shaped = schedule.v_shaped();
    const auto another = [&](int peer) { return peer >= 0 && peer != pp_rank; };
    for (int c = 0; c < layout.vpp; ++c) {
        probe.sends_forward.push_back(another(schedule.rank_behind(pp_rank, c)));
        probe.sends_backward.push_back(another(schedule.rank_before(pp_rank, c)));
    }
    const std::int64_t rows = layout.micro_batch * task.batch.sequence / layout.sizes.cp / (layout.sequence_parallel ? layout.sizes.tp : 1);
    probe.message = rows * task.model.stream_width() * bytes_of(task.training.compute_dtype());

    std::int64_t passes_begin = end, passes_end = begin;
    Outboxes boxes(model::send_depth(schedule, pp_rank), probe.v_shaped);
    const TraceProfiles stretches(device.allocations());
    for (const model::RangeRecord& range : device.ranges()) {
        if (range.depth != 0 || range.begin < begin) continue;
        const bool forward = range.name == "chunk forward", weights = range.name == "chunk weight gradient";
        if (!forward && !weights && range.name != "chunk backward") continue;
        const auto chunk = static_cast<std::size_t>(range.number);
        OpProfile profile = stretches.of(range.begin, range.end);
        if (!weights && (forward ? probe.sends_forward[chunk] : probe.sends_backward[chunk]))
            profile.net[kMessage] -= boxes.of(forward, chunk).push() * probe.message;
        (forward ? probe.forward : weights ? probe.weights : probe.backward)[chunk] = profile;
        passes_begin = std::min(passes_begin, range.begin);
        passes_end = std::max(passes_end, range.end);
    }
    probe.before = stretches.of(begin, passes_begin);
    // After the passes the probe frees its own open messages one after the other; the interval starts after that.
    probe.after = stretches.of(passes_end + boxes.open(), end);
    return probe;
}

RankTimeline play(const RankProbe& probe, const RankSchedule& schedule, const model::SendDepth& depth, bool keep_ops) {
    RankTimeline timeline;
    const std::size_t run_length = (schedule.ops.size() + kMostTimelineOps - 1) / kMostTimelineOps;
    if (keep_ops) timeline.ops.reserve(std::min(schedule.ops.size(), kMostTimelineOps));
    StepPlayer player(probe.held, timeline);
    timeline.begin = player.look(probe.before);
    player.run(probe.before, StepPart::begin);
    Outboxes boxes(depth, probe.v_shaped);
    for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
        const PipelineOp& op = schedule.ops[i];
        const auto chunk = static_cast<std::size_t>(op.chunk);
        const bool forward = op.pass == Pass::forward, weights = op.pass == Pass::weight_gradient;
        MGPLAN_ASSERT((op.pass == Pass::backward) == probe.weights.empty() || forward, "the probe divided backwards as the schedule does");
        const OpProfile& profile = (forward ? probe.forward : weights ? probe.weights : probe.backward)[chunk];
        if (keep_ops) {
            const bool first = i % run_length == 0;
            if (first || player.live() + profile.peak > timeline.ops.back().peak) {
                TimelineOp kept = player.look(profile);
                kept.op = op;
                kept.index = static_cast<std::int64_t>(i);
                if (first)
                    timeline.ops.push_back(kept);
                else
                    timeline.ops.back() = kept;
            }
        }
        player.run(profile, StepPart::passes, static_cast<std::int64_t>(i));
        if (!weights && (forward ? probe.sends_forward[chunk] : probe.sends_backward[chunk]))
            player.keep(boxes.of(forward, chunk).push() * probe.message);
    }
    player.keep(-boxes.open() * probe.message);
    timeline.end = player.look(probe.after);
    player.run(probe.after, StepPart::end);
    return timeline;
}

}  // namespace mgplan::simulator
