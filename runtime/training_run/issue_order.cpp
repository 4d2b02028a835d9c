#include "runtime/training_run/issue_order.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "model/communicator/recording_communicator.hpp"
#include "model/meta/meta_device.hpp"
#include "plan/layout/rank_groups.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::runtime {
namespace {

class Order final : public model::CollectiveListener {
public:
    explicit Order(IssuedOps& issued) : issued_(issued) {}
    void on_collective(const model::CollectiveRecord& record) override {
        if (record.ranks == 1 || record.kind == model::CollectiveKind::send || record.kind == model::CollectiveKind::receive) return;
        issued_.ops.push_back({std::string(record.group), std::string(to_string(record.kind))});
    }

private:
    IssuedOps& issued_;
};

/// Returns the operations of a rank in groups that it shares with another one.
std::vector<IssuedOps::One> shared_with(const IssuedOps& mine, const IssuedOps& other, const std::vector<std::string>& across) {
    std::vector<IssuedOps::One> shared;
    for (const auto& each : mine.ops) {
        const bool crosses = std::find(across.begin(), across.end(), each.group) != across.end();
        const bool both = std::any_of(other.ops.begin(), other.ops.end(), [&](const auto& op) { return op.group == each.group; });
        if (mine.stage == other.stage || (crosses && both)) shared.push_back(each);
    }
    return shared;
}

}  // namespace

std::string order_disagreement(const std::vector<IssuedOps>& ranks, const std::vector<std::string>& across) {
    for (std::size_t i = 0; i < ranks.size(); ++i) {
        for (std::size_t j = i + 1; j < ranks.size(); ++j) {
            const auto a = shared_with(ranks[i], ranks[j], across), b = shared_with(ranks[j], ranks[i], across);
            const auto [at, there] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
            if (at == a.end() && there == b.end()) continue;
            const auto text = [](auto place, const auto& ops) {
                return place == ops.end() ? std::string("nothing") : fmt::format("{} in group {}", place->op, place->group);
            };
            return fmt::format(
                "ranks {} and {} issue operations of groups that they share in different orders: as number {} {} issues {}, {} {}",
                ranks[i].rank, ranks[j].rank, at - a.begin() + 1, ranks[i].rank, text(at, a), ranks[j].rank, text(there, b));
        }
    }
    return {};
}

void check_issue_order(const model::TrainingTask& asked) {
    model::TrainingTask task = asked;
    task.balanced_routing = true;
    task.gradients.on_non_finite = model::OnNonFinite::skip;
    // More microbatches would repeat the order of these.
    const std::int64_t few = std::max<std::int64_t>(task.layout.sizes.pp, task.layout.group_size);
    task.layout.num_microbatches = std::min(task.layout.num_microbatches, few);
    const int world = static_cast<int>(task.layout.sizes.world);
    std::vector<IssuedOps> ranks;
    const auto stage_of = [&](int rank) {
        const auto stages = group_of(task.layout.sizes, "pp", rank);
        return static_cast<int>(std::find(stages.begin(), stages.end(), rank) - stages.begin());
    };
    const auto ends = [&](int first) { return group_of(task.layout.sizes, "pp", first); };
    for (const int corner : {0, world - 1}) {
        for (const auto rank : ends(corner)) {
            if (std::any_of(ranks.begin(), ranks.end(), [&](const IssuedOps& each) { return each.rank == rank; })) continue;
            IssuedOps& issued = ranks.emplace_back(IssuedOps{rank, stage_of(rank), {}});
            Order order(issued);
            model::MetaDevice device({.keep_allocations = false, .keep_ops = false});
            model::RankTrainer trainer(task, device, model::recording_world(rank, world, &order));
            static_cast<void>(trainer.step({}, 0));
        }
    }
    if (const std::string why = order_disagreement(ranks, {"pp", "pp-backward", "tp-pp", "expert:tp-ep-pp", "embedding"}); !why.empty())
        throw RunError(why + "; the plan would wait for itself");
}

}  // namespace mgplan::runtime
