#include "runtime/calibration/traced_work.hpp"

#include "model/communicator/recording_communicator.hpp"
#include "model/meta/meta_device.hpp"

namespace mgplan::runtime {
namespace {

class Collector final : public model::OpListener {
public:
    void on_op(const model::OpRecord& record) override {
        const model::ProductSizes& product = record.product;
        if (product.m > 0 && product.n > 0 && product.k > 0) {
            work.products.insert(product);
            // The first microbatch writes weight gradients to which the others add, and one alone is traced.
            model::ProductSizes added = product;
            added.accumulate = true;
            if (product.transpose_a) work.products.insert(added);
        }
        const model::GroupedProductSizes& grouped = record.grouped;
        if (grouped.groups > 0 && grouped.n > 0 && grouped.k > 0) work.grouped_products.insert(grouped);
        if (record.part.whole) work.attention.insert(record.part.extent());
    }
    TracedWork work;
};

}  // namespace

TracedWork traced_work(const model::TrainingTask& task, int rank, const model::KernelTraits& traits) {
    model::MetaDevice device({.keep_allocations = false, .keep_ops = false, .stands_for = traits});
    Collector collector;
    device.set_listener(&collector);
    model::TrainingTask balanced = task;
    balanced.balanced_routing = true;
    balanced.gradients.on_non_finite = model::OnNonFinite::skip;
    {
        model::RankTrainer trainer(balanced, device, model::recording_world(rank, static_cast<int>(task.layout.sizes.world)));
        static_cast<void>(trainer.step({}, 0));
    }
    device.set_listener(nullptr);
    return std::move(collector.work);
}

std::vector<std::int64_t> routed_rows(std::int64_t groups, std::int64_t mean, std::int64_t call) {
    std::vector<std::int64_t> rows(static_cast<std::size_t>(groups), mean);
    auto state = static_cast<std::uint64_t>(call) + 1;
    for (std::size_t i = 0; i + 1 < rows.size(); i += 2) {  // the next expert loses the rows that this one gains
        state = state * 6364136223846793005U + 1442695040888963407U;
        const auto moved = static_cast<std::int64_t>((state >> 33U) % static_cast<std::uint64_t>(mean / 4 + 1)) - mean / 8;
        rows[i] += moved;
        rows[i + 1] -= moved;
    }
    return rows;
}

}  // namespace mgplan::runtime
