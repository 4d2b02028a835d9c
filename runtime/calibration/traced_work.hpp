#pragma once
// Which products and attentions a rank computes: the trainer's own code on shapes.

#include <cstdint>
#include <set>
#include <vector>

#include "model/device/device.hpp"
#include "model/training/rank_trainer.hpp"

namespace mgplan::runtime {

/// Different sizes of one rank's step, each once.
struct TracedWork {
    std::set<model::ProductSizes> products;
    std::set<model::GroupedProductSizes> grouped_products;
    std::set<model::AttentionExtent> attention;
    void merge(const TracedWork& other) {
        products.insert(other.products.begin(), other.products.end());
        grouped_products.insert(other.grouped_products.begin(), other.grouped_products.end());
        attention.insert(other.attention.begin(), other.attention.end());
    }
};

/// The work of one step of a rank of the task, every expert with as many tokens as any other; `traits`: the device's. Throws
/// ConfigError for what the layers do not compute.
[[nodiscard]] TracedWork traced_work(const model::TrainingTask& task, int rank, const model::KernelTraits& traits);

/// Rows of each of `groups` experts, `mean` on average, in the `call`-th step of a dropless mixture: others at each call, up to an eighth
/// more or fewer. A library that is asked for equal ones again and again finds all at hand, which a training never lets it.
[[nodiscard]] std::vector<std::int64_t> routed_rows(std::int64_t groups, std::int64_t mean, std::int64_t call);

}  // namespace mgplan::runtime
