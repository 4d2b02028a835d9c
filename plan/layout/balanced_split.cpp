#include "plan/layout/balanced_split.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>

#include "plan/layout/pipeline_layout.hpp"

namespace mgplan {
namespace {

/// The decoders of each stage, and the work that they make.
class MovedLayers {
public:
    static constexpr double kLeastGain = 1e-9;  ///< above the error of sums in another order

    MovedLayers(const StageSplit& split, const StageLoads& loads) : pp_(static_cast<std::size_t>(split.pp())), loads_(loads) {
        for (int chunk = 0; chunk < split.vpp(); ++chunk) {
            for (int rank = 0; rank < split.pp(); ++rank) decoders_.push_back(split.chunk(rank, chunk).decoders);
        }
    }

    /// Moves one layer from the fullest rank to the emptiest one if that makes the ranks more equal; false if it does not.
    bool move_one() {
        const std::vector<double> before = stages();
        const std::vector<double> ranks = by_rank(before);
        const auto fullest = static_cast<std::size_t>(std::max_element(ranks.begin(), ranks.end()) - ranks.begin());
        const auto emptiest = static_cast<std::size_t>(std::min_element(ranks.begin(), ranks.end()) - ranks.begin());
        std::optional<std::size_t> from, to;
        for (std::size_t stage = 0; stage < decoders_.size(); ++stage) {
            const bool can_give = decoders_[stage] > (stage + 1 == decoders_.size() ? 0 : 1);
            if (stage % pp_ == fullest && can_give && (!from || before[stage] >= before[*from])) from = stage;
            if (stage % pp_ == emptiest && (!to || before[stage] <= before[*to])) to = stage;
        }
        if (!from) return false;
        --decoders_[*from];
        ++decoders_[*to];
        const std::vector<double> after = by_rank(stages());
        if (most_of(after) <= ranks[fullest] && squares_of(after) < squares_of(ranks) * (1 - kLeastGain)) return true;
        ++decoders_[*from];
        --decoders_[*to];
        return false;
    }

    /// Work of the fullest rank.
    [[nodiscard]] double most() const { return most_of(by_rank(stages())); }

    /// The stages as a layout string writes them.
    [[nodiscard]] std::vector<std::string> letters(std::int64_t mtp_layers) const {
        std::vector<std::string> stages;
        for (const std::int64_t count : decoders_) stages.emplace_back(static_cast<std::size_t>(count), 't');
        stages.front().insert(0, 1, 'E');
        stages.back().append(static_cast<std::size_t>(mtp_layers), 'm').append(1, 'L');
        return stages;
    }

private:
    static double most_of(const std::vector<double>& ranks) { return *std::max_element(ranks.begin(), ranks.end()); }
    static double squares_of(const std::vector<double>& ranks) {
        return std::inner_product(ranks.begin(), ranks.end(), ranks.begin(), 0.0);
    }

    [[nodiscard]] std::vector<double> stages() const {
        std::vector<double> work;
        auto layer = loads_.layers.begin();
        for (const std::int64_t count : decoders_) {
            work.push_back(std::accumulate(layer, layer + count, 0.0));
            layer += count;
        }
        work.back() += loads_.mtp + loads_.loss;
        return work;
    }

    [[nodiscard]] std::vector<double> by_rank(const std::vector<double>& stages) const {
        std::vector<double> ranks(pp_, 0.0);
        for (std::size_t stage = 0; stage < stages.size(); ++stage) ranks[stage % pp_] += stages[stage];
        return ranks;
    }

    std::size_t pp_;
    const StageLoads& loads_;
    std::vector<std::int64_t> decoders_;  ///< by stage
};

}  // namespace

std::optional<StageSplit> balanced_stage_split(const StageSplit& split, const StageLoads& loads) {
    if (split.pp() == 1 || split.v_shaped()) return std::nullopt;
    MovedLayers layers(split, loads);
    const double before = layers.most();
    while (layers.move_one()) {
    }
    if (layers.most() >= before * (1 - MovedLayers::kLeastGain)) return std::nullopt;
    StageSplitRequest request;
    request.layers = split.request().layers;
    request.mtp_layers = split.request().mtp_layers;
    request.pp = split.pp();
    request.vpp = split.vpp();
    const std::vector<std::string> stages = layers.letters(request.mtp_layers);
    request.pipeline_layout = compact_pipeline_layout(stages);
    return make_stage_split(request);
}

}  // namespace mgplan
