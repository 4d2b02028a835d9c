#include <algorithm>
#include <array>
#include <chrono>
#include <set>

#include <fmt/core.h>

#include "plan/text/text.hpp"
#include "runtime/calibration/calibrate.hpp"
#include "runtime/calibration/repeat.hpp"

namespace mgplan::runtime {
namespace {

using model::Communicator;
using model::MemoryCategory;
using model::Tensor;

constexpr int kRounds = 7;
constexpr double kMeasure = 0, kPassOver = 1, kStop = 2;  ///< rank 0's choice for all ranks
constexpr std::array<const char*, 5> kOperations{"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_receive"};

/// One number that all ranks of the world agree on.
class Agreement {
public:
    Agreement(const model::World& world, model::Device& device)
        : world_(join(world)),
          number_(device.empty({1}, Dtype::fp64, MemoryCategory::communication, "number to agree on")),
          device_(device) {}

    double largest(double value) { return reduce(value, model::Reduction::maximum); }
    double average(double value) { return reduce(value, model::Reduction::sum) / world_->size(); }
    void barrier() { world_->barrier(); }

private:
    static std::unique_ptr<Communicator> join(const model::World& world) {
        std::vector<std::int32_t> all(static_cast<std::size_t>(world.size));
        for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int32_t>(i);
        return world.join("calibration", all);
    }
    double reduce(double value, model::Reduction reduction) {
        device_.write(number_, &value);
        world_->all_reduce(number_, reduction);
        device_.read(number_, &value);
        return value;
    }

    std::unique_ptr<Communicator> world_;
    Tensor number_;
    model::Device& device_;
};

/// One operation of `bytes` in nccl-tests' sense.
class MeasuredOperation {
public:
    MeasuredOperation(const std::string& op, Communicator& group, model::Device& device, std::int64_t bytes)
        : op_(op), group_(group), n_(group.size()), elements_(bytes / 4) {
        whole_ = device.zeros({elements_}, Dtype::fp32, MemoryCategory::communication, "whole to measure with");
        const bool gathers = op == "all_gather" || op == "reduce_scatter";
        if (op != "all_reduce")
            other_ =
                device.zeros({gathers ? elements_ / n_ : elements_}, Dtype::fp32, MemoryCategory::communication, "part to measure with");
        rows_.assign(static_cast<std::size_t>(n_), elements_ / n_);
    }

    void once() {
        if (op_ == "all_reduce") return group_.all_reduce(whole_, model::Reduction::sum);
        if (op_ == "all_gather") return group_.all_gather(other_, whole_);
        if (op_ == "reduce_scatter") return group_.reduce_scatter(whole_, other_, model::Reduction::sum);
        if (op_ == "all_to_all") return group_.all_to_all(whole_, other_, rows_, rows_);
        // As in a pipeline: every rank sends to the next one and receives from the one before.
        const auto receive = group_.start_receive(other_, (group_.rank() + n_ - 1) % n_);
        const auto send = group_.start_send(whole_, (group_.rank() + 1) % n_);
        send->wait();
        receive->wait();
    }

private:
    std::string op_;
    Communicator& group_;
    int n_;
    std::int64_t elements_;
    Tensor whole_, other_;
    std::vector<std::int64_t> rows_;
};

Timing timed(MeasuredOperation& operation, model::Device& device, Agreement& agreement, double budget) {
    const auto watch = device.make_stopwatch();
    const auto round = [&](std::int64_t count) {
        device.synchronize();
        agreement.barrier();
        watch->start();
        for (std::int64_t i = 0; i < count; ++i) operation.once();
        watch->stop();
        return agreement.average(watch->seconds() / static_cast<double>(count));
    };
    static_cast<void>(round(1));
    const double first = agreement.largest(round(1));
    // As many as fit into the budget, the same on every rank.
    const double wanted = std::max(1.0, std::min(static_cast<double>(calls_together(first)), budget / kRounds / first));
    std::vector<double> seconds;
    for (int i = 0; i < kRounds; ++i) seconds.push_back(round(static_cast<std::int64_t>(wanted)));
    return timing_of(std::move(seconds));
}

/// Machines of the instance of the group that is on most of them.
std::int64_t most_nodes(const MeasuredGroup& group, const std::vector<int>& node_of_rank) {
    std::size_t most = 1;
    if (node_of_rank.empty()) return 1;
    for (const auto& ranks : group.ranks) {
        std::set<int> nodes;
        for (const std::int32_t rank : ranks) nodes.insert(node_of_rank[static_cast<std::size_t>(rank)]);
        most = std::max(most, nodes.size());
    }
    return static_cast<std::int64_t>(most);
}

}  // namespace

std::vector<MeasuredGroup> groups_of(const ParallelSizes& sizes) {
    std::vector<MeasuredGroup> groups;
    const RankGroups all(sizes);
    std::set<std::vector<std::int32_t>> seen;
    for (const char* name : {"tp", "cp", "dp-cp", "pp", "expert:ep", "expert:tp", "expert:dp"}) {
        const NamedGroups& named = all.at(name);
        if (named.group_size < 2 || named.ranks.size() != static_cast<std::size_t>(sizes.world)) continue;
        if (!seen.insert(named.ranks).second) continue;  // of the same ranks as one before
        MeasuredGroup group{name, {}};
        for (std::size_t i = 0; i < named.count(); ++i) group.ranks.emplace_back(named[i].begin(), named[i].end());
        groups.push_back(std::move(group));
    }
    return groups;
}

std::vector<MeasuredGroup> groups_of(std::int64_t world) {
    std::vector<MeasuredGroup> groups;
    const auto add = [&](std::int64_t size) {
        MeasuredGroup group{size == world ? "world" : fmt::format("world/{}", world / size), {}};
        for (std::int64_t first = 0; first < world; first += size) {
            group.ranks.emplace_back();
            for (std::int64_t i = 0; i < size; ++i) group.ranks.back().push_back(static_cast<std::int32_t>(first + i));
        }
        groups.push_back(std::move(group));
    };
    for (std::int64_t size = 2; size < world; size *= 2) {
        if (world % size == 0) add(size);
    }
    if (world > 1) add(world);
    return groups;
}

bool measure_collectives(const model::World& world, model::Device& device, const std::vector<MeasuredGroup>& groups,
                         const CalibrateOptions& options, ClusterCalibration& into) {
    Agreement agreement(world, device);
    std::vector<std::int64_t> sizes;
    for (std::int64_t bytes = 4096; bytes <= options.most_bytes; bytes *= 8) sizes.push_back(bytes);
    const std::size_t all = groups.size() * kOperations.size() * sizes.size();
    std::size_t done = 0;
    for (const auto& group : groups) {
        const std::int64_t nodes = most_nodes(group, options.node_of_rank);
        const auto own = std::find_if(group.ranks.begin(), group.ranks.end(),
                                      [&](const auto& list) { return std::find(list.begin(), list.end(), world.rank) != list.end(); });
        MGPLAN_ASSERT(own != group.ranks.end(), "every rank is in one group of each name");
        const auto communicator = world.join(group.name, *own);
        const std::int64_t n = communicator->size();
        for (const char* op : kOperations) {
            for (const std::int64_t about : sizes) {
                ++done;
                const std::int64_t bytes = std::max<std::int64_t>(1, about / (4 * n)) * 4 * n;  // whole elements for every rank
                const bool known = std::any_of(into.collectives.begin(), into.collectives.end(), [&](const CollectiveTime& each) {
                    return each.group == group.name && each.op == op && each.ranks == n && each.bytes == bytes;
                });
                const bool stop = options.interrupt != nullptr && options.interrupt->load();
                // Rank 0 alone decides: the others may have no file, and a signal reaches each rank at a different time.
                const double choice = agreement.largest(world.rank != 0 ? kMeasure : known ? kPassOver : stop ? kStop : kMeasure);
                if (choice == kPassOver) continue;
                if (choice == kStop) return false;
                MeasuredOperation operation(op, *communicator, device, bytes);
                const CollectiveTime time{group.name, op, n, bytes, timed(operation, device, agreement, options.seconds), nodes};
                into.collectives.push_back(time);
                if (world.rank == 0 && options.on_measured) {
                    options.on_measured(into, {fmt::format("{} of {} ranks ({}), {}: {:.1f} us, busbw {:.2f} GB/s", op, n, group.name,
                                                           human_bytes(bytes), time.time.seconds * 1e6, time.bus_bandwidth() * 1e-9),
                                               done, all});
                }
            }
        }
    }
    return true;
}

}  // namespace mgplan::runtime
