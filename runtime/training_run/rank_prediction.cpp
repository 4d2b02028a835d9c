#include "runtime/training_run/rank_prediction.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "model/communicator/collective_counter.hpp"
#include "model/communicator/recording_communicator.hpp"
#include "model/meta/meta_device.hpp"
#include "runtime/measurement/rank_use.hpp"
#include "runtime/memory/pool_allocator.hpp"

namespace mgplan::runtime {
namespace {

/// Counts allocations as the meta device does, and the pool's blocks behind them: a block that was given back serves the
/// next taker of its size, so the pool holds the most blocks of each size that lived at one time.
class ShapeAllocator final : public model::Allocator {
public:
    [[nodiscard]] std::byte* take(std::int64_t bytes, model::MemoryCategory category, std::string_view name) override {
        auto& [live, most] = blocks_[PoolAllocator::block_bytes_for(bytes)];
        most = std::max(most, ++live);
        return use_.take(bytes, category, name);
    }
    void give_back(std::byte* memory, std::int64_t bytes, model::MemoryCategory category) noexcept override {
        --blocks_.find(PoolAllocator::block_bytes_for(bytes))->second.first;
        use_.give_back(memory, bytes, category);
    }

    [[nodiscard]] const model::MemoryUse& use() const { return use_.use(); }
    [[nodiscard]] std::int64_t reserved_bytes() const {
        std::int64_t sum = 0;
        for (const auto& [bytes, blocks] : blocks_) sum += bytes * blocks.second;
        return sum;
    }

private:
    model::MetaAllocator use_{false};
    std::map<std::int64_t, std::pair<std::int64_t, std::int64_t>> blocks_;  // by size: alive now, most at one time
};

class ShapeDevice final : public model::Device {
public:
    explicit ShapeDevice(const model::KernelTraits& stands_for) : ShapeDevice(stands_for, std::make_unique<ShapeAllocator>()) {}
    [[nodiscard]] const ShapeAllocator& shapes() const { return shapes_; }

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
    State(const model::TrainingTask& asked, int rank, const model::KernelTraits& stands_for, model::RoutingLog* routing)
        : task(skipping(asked)),
          device(stands_for),
          trainer(task, device, model::recording_world(rank, static_cast<int>(task.layout.sizes.world), &traffic), routing) {}

    /// Whoever traces decides what a step without an update means.
    static model::TrainingTask skipping(model::TrainingTask task) {
        task.gradients.on_non_finite = model::OnNonFinite::skip;
        return task;
    }

    model::TrainingTask task;
    ShapeDevice device;
    model::CollectiveCounter traffic;
    model::RankTrainer trainer;
};

RankPrediction::RankPrediction(const model::TrainingTask& task, int rank, const model::KernelTraits& stands_for, model::RoutingLog* routing)
    : state_(std::make_unique<State>(task, rank, stands_for, routing)) {}

RankPrediction::~RankPrediction() = default;

void RankPrediction::step(model::StepEnd end) {
    state_->trainer.assume_end(end);
    static_cast<void>(state_->trainer.step({}, 0));
}

RankUse RankPrediction::use() const {
    return rank_use(state_->device.shapes().use(), state_->device.shapes().reserved_bytes(), state_->traffic);
}

model::TrainingTask with_few_microbatches(const model::TrainingTask& task) {
    model::TrainingTask few = task;
    const std::int64_t group = std::max<std::int64_t>(task.layout.sizes.pp, task.layout.group_size);
    const std::int64_t enough = 2 * group * task.layout.vpp + 2;
    std::int64_t& microbatches = few.layout.num_microbatches;
    // A last group of the same length, which the schedule accepts when it accepts the task's.
    if (microbatches > enough) microbatches = enough + (microbatches - enough) % group;
    return few;
}

std::int64_t bytes_needed(const model::TrainingTask& task, int rank, const model::KernelTraits& stands_for) {
    RankPrediction prediction(task, rank, stands_for);
    prediction.step();
    return prediction.use().memory.reserved_bytes;
}

}  // namespace mgplan::runtime
