#include "planner/search_points.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "plan/allowed_processors.hpp"
#include "planner/plan_families.hpp"
#include "planner/run_parallel.hpp"
#include "planner/search.hpp"

namespace mgplan::planner {
namespace {

/// Limits on the number of points with event simulation and allocator replay, and on their passes in total. An allocator replay of engine
/// megatron takes up to a tenth of a second.
constexpr std::size_t kMostReplayedPoints = 24;
constexpr std::int64_t kPassesOfPoints = 1'000'000;

/// A layout that becomes a point.
struct Chosen {
    const RankedLayout* ranked;
    std::int64_t members;
    std::size_t rank;  ///< 0: after the ranked ones
};

bool stands_before(const Chosen& a, const Chosen& b) {
    if (a.rank != b.rank && (a.rank == 0 || b.rank == 0)) return b.rank == 0;
    if (a.rank != b.rank) return a.rank < b.rank;
    return ranks_before(*a.ranked, *b.ranked, Objective::throughput);
}

std::vector<Chosen> points_of_families(const SearchResult& found) {
    std::vector<Chosen> chosen;
    const std::vector<PlanFamily> ranked = plan_families(found.best, found.best.size());
    for (const FamilyPoint& family : found.families) {
        const auto same = std::find_if(ranked.begin(), ranked.end(), [&](const PlanFamily& each) {
            return same_family(found.best[each.fastest].layout, family.fastest.layout);
        });
        if (same == ranked.end())
            chosen.push_back({&family.fastest, family.members, 0});
        else
            chosen.push_back({&found.best[same->fastest], family.members, same->fastest + 1});
    }
    std::sort(chosen.begin(), chosen.end(), stands_before);
    return chosen;
}

/// The members of the Pareto set that are no family's point.
std::vector<Chosen> other_pareto_points(const SearchResult& found, const std::vector<Chosen>& families) {
    std::vector<Chosen> chosen;
    for (const RankedLayout& member : found.pareto) {
        if (std::any_of(families.begin(), families.end(), [&](const Chosen& each) { return each.ranked->layout == member.layout; }))
            continue;
        const auto place =
            std::find_if(found.best.begin(), found.best.end(), [&](const auto& each) { return each.layout == member.layout; });
        chosen.push_back({&member, 0, place == found.best.end() ? 0 : static_cast<std::size_t>(place - found.best.begin()) + 1});
    }
    return chosen;
}

/// Adds the predictions of points in their order, with event simulation as long as passes allow.
class PointPredictions {
public:
    PointPredictions(simulator::CostModel& model, int threads)
        : models_{&model}, threads_(static_cast<std::size_t>(threads > 0 ? threads : allowed_processors())) {}

    std::vector<SearchPoint> of(const std::vector<Chosen>& chosen) {
        std::vector<SearchPoint> points;
        for (const auto& [ranked, members, rank] : chosen) {
            passes_ += simulator::CostModel::passes(ranked->layout);
            const bool replayed = count_++ < kMostReplayedPoints && passes_ <= kPassesOfPoints;
            points.push_back({PlannedLayout{ranked->layout, {}, rank, {}}, members, replayed});
        }
        // Replays take much longer than estimates.
        const auto first_estimated = std::ranges::find(points, false, &SearchPoint::replayed);
        const auto replays = static_cast<std::size_t>(first_estimated - points.begin());
        const std::size_t blocks = (points.size() - replays + kEstimatesOfBlock - 1) / kEstimatesOfBlock;
        while (models_.size() < std::min(threads_, replays + blocks)) {
            others_.push_back(std::make_unique<simulator::CostModel>(models_.front()->workload(), *models_.front()));
            models_.push_back(others_.back().get());
        }
        run_parallel(replays + blocks, models_.size(),
                     [&](std::size_t part, std::size_t thread) {
                         const std::size_t first = part < replays ? part : replays + (part - replays) * kEstimatesOfBlock;
                         const std::size_t end = part < replays ? part + 1 : std::min(points.size(), first + kEstimatesOfBlock);
                         for (std::size_t i = first; i < end; ++i) predict(points[i], *models_[thread]);
                     },
                     {});
        // A replay may change the order of points that the ranking has not replayed.
        const auto behind =
            std::stable_partition(points.begin(), points.end(), [](const SearchPoint& point) { return point.plan.rank > 0; });
        std::stable_sort(behind, points.end(), [](const SearchPoint& a, const SearchPoint& b) {
            return a.plan.prediction.time.iteration_seconds < b.plan.prediction.time.iteration_seconds;
        });
        return points;
    }

private:
    static constexpr std::size_t kEstimatesOfBlock = 256;

    static void predict(SearchPoint& point, simulator::CostModel& model) {
        const Layout& layout = point.plan.layout;
        point.plan.prediction =
            point.replayed ? model.predict_exactly(layout) : simulator::Prediction{model.estimate_time(layout), model.memory(layout)};
    }

    std::vector<std::unique_ptr<simulator::CostModel>> others_;
    std::vector<simulator::CostModel*> models_;  ///< by thread
    std::size_t threads_, count_ = 0;
    std::int64_t passes_ = 0;
};

}  // namespace

std::vector<SearchPoint> search_points(simulator::CostModel& model, const SearchResult& found, int threads, std::size_t most) {
    std::vector<Chosen> families = points_of_families(found);
    const std::vector<Chosen> others = other_pareto_points(found, families);
    families.resize(std::min(families.size(), most));
    PointPredictions predictions(model, threads);
    std::vector<SearchPoint> points = predictions.of(families);
    for (SearchPoint& point : predictions.of(others)) points.push_back(std::move(point));
    return points;
}

}  // namespace mgplan::planner
