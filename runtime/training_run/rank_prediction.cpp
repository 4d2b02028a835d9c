#include "runtime/training_run/rank_prediction.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include <fmt/core.h>

#include "model/communicator/collective_counter.hpp"
#include "model/communicator/recording_communicator.hpp"
#include "model/meta/meta_device.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"
#include "runtime/measurement/rank_use.hpp"
#include "runtime/memory/pool_allocator.hpp"
#include "runtime/training_run/rank_arena.hpp"

namespace mgplan::runtime {
namespace {

/// Counts allocations as the meta device does, and the memory they take: the range of an arena, if there is one, and the
/// pool's blocks. A block that was given back serves the next taker of its size, so that the pool holds the most blocks of
/// each size that lived at one time.
class ShapeAllocator final : public model::Allocator {
public:
    explicit ShapeAllocator(const ArenaScript* arena) : arena_(arena) {
        if (arena != nullptr) cursor_.emplace(*arena);
    }

    [[nodiscard]] std::byte* take(std::int64_t bytes, model::MemoryCategory category, std::string_view name) override {
        const auto offset = cursor_ ? cursor_->take(bytes, category, name) : std::nullopt;
        static_cast<void>(use_.take(bytes, category, name));
        if (offset) {
            const std::int64_t end = *offset + arena_->room_of(bytes);
            arena_bytes_ = std::max(arena_bytes_, end);
            return &in_arena_;
        }
        auto& [live, most] = blocks_[PoolAllocator::block_bytes_for(bytes)];
        most = std::max(most, ++live);
        return nullptr;
    }
    void give_back(std::byte* memory, std::int64_t bytes, model::MemoryCategory category) noexcept override {
        if (memory != &in_arena_) --blocks_.find(PoolAllocator::block_bytes_for(bytes))->second.first;
        use_.give_back(nullptr, bytes, category);
    }

    void begin_step() {
        if (cursor_) cursor_->begin_step();
    }
    void end_step() {
        if (cursor_) cursor_->end_step();
    }

    [[nodiscard]] const model::MemoryUse& use() const { return use_.use(); }
    [[nodiscard]] bool has_arena() const { return arena_ != nullptr; }
    [[nodiscard]] std::int64_t arena_bytes() const { return arena_bytes_; }
    [[nodiscard]] std::int64_t pool_bytes() const {
        std::int64_t sum = 0;
        for (const auto& [bytes, blocks] : blocks_) sum += bytes * blocks.second;
        return sum;
    }

private:
    const ArenaScript* arena_;
    std::optional<ArenaCursor> cursor_;
    std::byte in_arena_{};  ///< its address stands for all of the arena
    model::MetaAllocator use_{false};
    std::int64_t arena_bytes_ = 0;
    std::map<std::int64_t, std::pair<std::int64_t, std::int64_t>> blocks_;  // by size: alive now, most at one time
};

class ShapeDevice final : public model::Device {
public:
    ShapeDevice(const model::KernelTraits& stands_for, const ArenaScript* arena)
        : ShapeDevice(stands_for, std::make_unique<ShapeAllocator>(arena)) {}
    [[nodiscard]] ShapeAllocator& shapes() { return shapes_; }

private:
    ShapeDevice(const model::KernelTraits& stands_for, std::unique_ptr<ShapeAllocator> allocator)
        : Device(model::DeviceKind::meta, stands_for, std::move(allocator), nullptr),
          shapes_(static_cast<ShapeAllocator&>(Device::allocator())) {}
    void do_write(void* /*to*/, const void* /*from*/, std::int64_t /*bytes*/) override {}
    void do_read(void* /*to*/, const void* /*from*/, std::int64_t /*bytes*/) override {}
    void do_zero(void* /*memory*/, std::int64_t /*bytes*/) override {}

    ShapeAllocator& shapes_;
};

}  // namespace

struct RankPrediction::State {
    State(const model::TrainingTask& asked, int rank, const model::KernelTraits& stands_for, model::RoutingLog* routing,
          const ArenaScript* arena)
        : task(skipping(asked)),
          device(stands_for, arena),
          trainer(task, device, model::recording_world(rank, static_cast<int>(task.layout.sizes.world), &traffic), routing) {}

    /// The traced task skips an update that is not finite, and the caller decides what a step without one means.
    static model::TrainingTask skipping(model::TrainingTask task) {
        task.gradients.on_non_finite = model::OnNonFinite::skip;
        return task;
    }

    model::TrainingTask task;
    ShapeDevice device;
    model::CollectiveCounter traffic;
    model::RankTrainer trainer;
};

RankPrediction::RankPrediction(const model::TrainingTask& task, int rank, const model::KernelTraits& stands_for, model::RoutingLog* routing,
                               const ArenaScript* arena)
    : state_(std::make_unique<State>(task, rank, stands_for, routing, arena)) {}

RankPrediction::~RankPrediction() = default;

void RankPrediction::step(model::StepEnd end) {
    state_->trainer.assume_end(end);
    state_->device.shapes().begin_step();
    static_cast<void>(state_->trainer.step({}, 0));
    state_->device.shapes().end_step();
}

void RankPrediction::go_on_from(const model::TrainingPosition& position) {
    state_->trainer.go_on_from(position);
}

void RankPrediction::save() {
    // Once before ranks write, and once when all have (RankCheckpoints::save()).
    state_->trainer.meet_all();
    state_->trainer.meet_all();
}

RankUse RankPrediction::use() const {
    const ShapeAllocator& shapes = state_->device.shapes();
    RankUse use = rank_use(shapes.use(), shapes.arena_bytes() + shapes.pool_bytes(), state_->device.host_peak(), state_->traffic);
    if (shapes.has_arena()) {
        use.memory.arena_bytes = shapes.arena_bytes();
        use.memory.fallback_bytes = shapes.pool_bytes();
    }
    if (const auto totals = state_->trainer.graph_totals()) use.graphs = graph_values(*totals);
    return use;
}

model::TrainingTask with_few_microbatches(const model::TrainingTask& task) {
    model::TrainingTask few = task;
    // The graph of an iteration holds the tokens of all.
    if (task.layout.cuda_graphs.contains(CudaGraphScope::full_iteration)) return few;
    // Where a schedule with divided backwards begins to repeat itself depends on its kind.
    if (task.layout.schedule) return few;
    const std::int64_t group = std::max<std::int64_t>(task.layout.sizes.pp, task.layout.group_size);
    const std::int64_t enough = 2 * group * task.layout.vpp + 2;
    std::int64_t& microbatches = few.layout.num_microbatches;
    // A last group of the same length, which the schedule accepts when it accepts the task's.
    if (microbatches > enough) microbatches = enough + (microbatches - enough) % group;
    return few;
}

std::int64_t bytes_needed(const model::TrainingTask& task, int rank, const model::KernelTraits& stands_for, MemoryMode mode, bool guarded) {
    ArenaScript arena;
    if (mode == MemoryMode::arena) arena = arena_script(task, rank, stands_for, guarded);
    RankPrediction prediction(task, rank, stands_for, nullptr, mode == MemoryMode::arena ? &arena : nullptr);
    prediction.step();
    // The CPU's tensors lie in the host's memory, too.
    const MemoryValues memory = prediction.use().memory;
    return memory.reserved_bytes + (stands_for.kind == model::DeviceKind::cpu ? memory.host_bytes : 0);
}

void check_one_rank(const TrainingRunOptions& options, const RankDevices& devices, int rank, std::int64_t here) {
    const std::int64_t each = bytes_needed(with_few_microbatches(options.task), rank, devices.traits(), options.memory);
    const MachineMemory machine = devices.memory();
    if (each <= machine.bytes / here) return;
    throw ConfigError(fmt::format(
        "rank {} needs {}{}, more than the {} of memory that {}: {} are missing; {}plan a smaller model or batch", rank, human_bytes(each),
        here == 1 ? std::string() : fmt::format(", about {} together with the {} ranks of this machine", human_bytes(each * here), here),
        human_bytes(machine.bytes), machine.text, human_bytes(each * here - machine.bytes),
        here == 1 ? "" : "start fewer ranks on each machine, or "));
}

}  // namespace mgplan::runtime
