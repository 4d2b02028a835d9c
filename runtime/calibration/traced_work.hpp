#pragma once
// The products and attentions that a rank computes, recorded by running the trainer's own code on shapes.

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

/// Returns the work of one step of a rank of the task, with equal numbers of tokens for all experts; `traits`: the device's. Throws
/// ConfigError for features that the layers do not compute.
[[nodiscard]] TracedWork traced_work(const model::TrainingTask& task, int rank, const model::KernelTraits& traits);

/// Returns the rows of each of `groups` experts in the `call`-th step of a dropless MoE layer: `mean` on average, each up to an eighth
/// more or fewer, different at each call. With equal rows at each call a library would reuse all it has cached, unlike in a training.
[[nodiscard]] std::vector<std::int64_t> routed_rows(std::int64_t groups, std::int64_t mean, std::int64_t call);

}  // namespace mgplan::runtime
