#pragma once
// Token copies that the fullest rank's experts receive under a routing skew, relative to the even split.
//
// Definition of the quantiles. A rank runs out of memory if its peak does not fit, and a job stops if one of its ranks does. So p99 is a
// number that, with a probability of 99 %, no rank of the job exceeds in a step: over all ranks, MoE layers and microbatches (p50: the same
// with 50 %). Two things are random, drawn independently for every job and step:
//  - Which experts are popular. The skew's shares are assigned to the experts of each layer in a random order, independent of
//    the other layers, and each ep rank holds experts / ep consecutive experts, as in Megatron-LM (moe_layer.py,
//    local_expert_indices). All microbatches and data-parallel ranks share the order: it does not average out over them, only
//    over layers. With a histogram for each layer none of this is random.
//  - Which experts each token chooses: top_k different ones, independent of other tokens. Over thousands of tokens this
//    averages out. Tokens of real text are not independent, so that real counts vary more than this: a histogram or an
//    exponent models that.
// Formulas:
// - An expert of share w is among a token's choices with probability π = top_k·w, at most 1 (the excess goes to the other
//    experts in proportion; sampling proportional to size: Särndal, Swensson, Wretman, Model Assisted Survey Sampling,
//    section 3.6).
//  - The number of choices that one token gives to the L experts of a rank with μ = Σ π has the variance
//    μ·(1 - μ/L)·(1 - L/E)·E/(E - 1): exact for equal shares (hypergeometric), else Hájek's for fixed-size sampling (Annals
//    of Mathematical Statistics 35, 1964) with equal π inside a rank. Group-limited routing (DeepSeek-V2, arXiv 2405.04434,
//    section 2.2.2) multiplies it as for equal shares, where it is exact again. The counts of many tokens are normal.
//  - μ itself under random order: by a numerical convolution over the experts if a single layer counts; in a sum over layers
//    by its mean, variance and skewness (Pearson's type III, quantile after Wilson and Hilferty, PNAS 17, 1931).
//  - The fullest of n: Boole's inequality, each at the level (1 - q)/n. It needs no independence and never underestimates.
//    If both kinds are random, each gets half of 1 - q.
//  - worst: every token sends as many copies as possible to one rank: min(top_k, L) of its top_k.
// With experts that drop tokens beyond their capacity no rank gets more than that; padded to it, all get exactly that.

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "plan/model/model_spec.hpp"
#include "plan/model/routing_skew.hpp"

namespace mgplan::simulator {

enum class RoutingQuantile : std::uint8_t { p50, p99, worst };

/// Received tokens relative to the even split, at least 1.
struct RowFactors {
    double saved = 1;  ///< mean over the live layers and microbatches: scales memory kept for the backward
    double peak = 1;   ///< factor of the fullest single layer and microbatch: scales memory that lives only during its pass
};

/// Consecutive MoE layers of a rank, and the number of live microbatches of each.
struct LiveMixtures {
    std::int64_t first = 0;  ///< among the model's MoE layers, from 0
    std::int64_t layers = 0;
    std::int64_t microbatches = 0;
};

/// Inputs of the quantiles of one layout.
struct RoutedJob {
    std::int64_t ep = 1, etp = 1, pp = 1, world = 1;
    std::int64_t tokens = 0;        ///< that one rank routes in one layer and microbatch
    std::int64_t microbatches = 1;  ///< microbatches of one step
};

/// Routing of one model under one skew. Not thread-safe: results are cached by ep.
class RoutingLoad {
public:
    /// `model` must have MoE layers that `skew` suits (validate()); both are copied.
    RoutingLoad(const ModelSpec& model, RoutingSkew skew);

    /// Distribution of popular experts over the ranks of one ep.
    struct Placement {
        double mean = 0;       ///< copies that a token gives to one rank's experts, averaged over ranks
        double most = 0;       ///< to those of the rank with the most popular experts together
        double deviation = 0;  ///< deviation of that number over ranks in one layer; 0 if nothing is random
        double skewness = 0;
        double step = 0;           ///< distance of the values in `tail`
        std::vector<double> tail;  ///< probability that the number exceeds i·step in one layer
        /// With a histogram for each layer: the same number of each ep rank, [layer·ep + rank], and its sum over the preceding layers.
        std::vector<double> by_layer, before;
    };

    /// One layout at one quantile.
    struct Level {
        RoutingQuantile quantile = RoutingQuantile::p50;
        const Placement* placement = nullptr;  ///< null if every rank receives the same number of tokens
        RoutedJob job;
        double even_rows = 0;   ///< tokens of one rank in one layer and microbatch with the even split
        double worst_rows = 0;  ///< the same in the worst case
        double local = 1;       ///< number of experts of a rank
        double spread = 0;      ///< variance of a token's μ copies for a rank, divided by μ·(1 - μ/L)
        double placement_z = 0, saved_z = 0, peak_z = 0;
        double peak = 1;  ///< RowFactors::peak; unused with a histogram for each layer
    };

    [[nodiscard]] Level level(const RoutedJob& job, RoutingQuantile quantile);
    /// Factors of a rank that holds `live`; 1 if it holds no MoE layer.
    [[nodiscard]] RowFactors rows(const Level& level, std::span<const LiveMixtures> live) const;

    /// For the time model, because all ranks of an ep group wait for the one with the most copies in each layer: its copies relative to the
    /// even number, averaged over layers and, if expert popularity is random, over orders; at least 1. The variance of single tokens'
    /// choices, which many tokens average out, is left out. Random orders: the largest of ep ranks by Boole's inequality, slightly too low
    /// here, because the ranks of a group are negatively correlated.
    [[nodiscard]] double busiest(std::int64_t ep);

    [[nodiscard]] const RoutingSkew& skew() const { return skew_; }

private:
    [[nodiscard]] const Placement& placement(std::int64_t ep);
    [[nodiscard]] Placement place_at_random(std::int64_t ep) const;
    [[nodiscard]] Placement place_as_counted(std::int64_t ep) const;
    /// Tokens of one rank, mean over `draws` layers and microbatches, for experts to which a token gives `choices` copies.
    [[nodiscard]] static double rows_of(const Level& level, double choices, double z, double draws);
    [[nodiscard]] double choice_spread(double held) const;

    MoeSpec moe_;
    RoutingSkew skew_;
    std::int64_t layers_ = 0;                         ///< number of MoE layers, including those of multi-token prediction
    std::vector<std::vector<double>> probabilities_;  ///< π of each expert; one list, or one for each layer
    std::unordered_map<std::int64_t, Placement> placements_;
};

/// z with P(Z > z) = p of a standard normal Z, p in (0, 0.5].
[[nodiscard]] double normal_upper_quantile(double p);

}  // namespace mgplan::simulator
