#pragma once
// The rates that ops of one training are priced by: built here for the cost model, for `verify` and for whoever prices ops.

#include <cstdint>

#include "plan/cluster/cluster_spec.hpp"
#include "plan/training/training_spec.hpp"
#include "simulator/compute/kernels.hpp"

namespace mgplan::simulator {

/// What op_seconds() takes (simulator/price/op_price.hpp). Its pointers are those of a TrainingRates, which outlives it.
struct OpRates {
    const KernelTimes* products = nullptr;  ///< of products whose operands are fp8, and of all else
    const KernelTimes* storage = nullptr;   ///< of products that stay in the storage type: head, router, unfused core of attention
    const Calibration* calibration = nullptr;
    double host_bandwidth = 0;          ///< bytes per second between GPU and host, each way
    double attention_share = 1;         ///< packed sequences: pairs of their documents over those of whole sequences
    std::int64_t attention_length = 0;  ///< places of a document, for the rate of attention; 0: not packed
};

/// Rates of a cluster's GPU at a training's precision, format and type of gradients, and at 16 bits where that precision is quantised.
/// `calibration` must outlive it.
class TrainingRates {
public:
    TrainingRates(const ClusterSpec& cluster, const Calibration& calibration, const TrainingSpec& training);
    // What ops() gives points into it.
    TrainingRates(const TrainingRates&) = delete;
    TrainingRates& operator=(const TrainingRates&) = delete;

    [[nodiscard]] const KernelTimes& products() const { return products_; }
    [[nodiscard]] const KernelTimes& storage() const { return storage_; }
    /// For sequences that are not packed.
    [[nodiscard]] OpRates ops() const { return {&products_, &storage_, &calibration_, host_bandwidth_}; }

private:
    const Calibration& calibration_;
    KernelTimes products_, storage_;
    double host_bandwidth_;
};

}  // namespace mgplan::simulator
