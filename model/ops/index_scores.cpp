#include "model/ops/index_scores.hpp"

#include <algorithm>

#include "model/ops/checks.hpp"

namespace mgplan::model {

Tensor index_scores(const Tensor& q, const Tensor& k, const Tensor& weights, std::int64_t batch) {
    expect_float(q, "index queries");
    expect_float(k, "index keys");
    MGPLAN_ASSERT(q.shape().rank() == 3 && k.shape().rank() == 2, "index queries have heads, and one key serves all of them");
    const std::int64_t rows = q.shape()[0], heads = q.shape()[1], width = q.shape()[2];
    MGPLAN_ASSERT(batch > 0 && k.shape()[0] % batch == 0 && rows % batch == 0, "sequences have rows and keys alike");
    const std::int64_t keys = k.shape()[0] / batch;
    expect_shape(k, {keys * batch, width}, "index keys");
    expect_shape(weights, {rows, heads}, "weights of index heads");
    expect_same_device(q, k, weights);
    Device& device = q.device();
    MGPLAN_ASSERT(!device.computes(), "indexers are known of shapes alone");
    Tensor scores = device.empty({rows, keys}, Dtype::fp32, MemoryCategory::activations, "index scores");
    const double pairs = static_cast<double>(rows) * static_cast<double>(keys) / 2;
    device.report({"index_scores", 2 * pairs * static_cast<double>(heads * width), total_bytes(q, k, weights), scores.bytes()},
                  {.small_products = true, .model_share = 1});
    return scores;
}

Tensor largest_places(const Tensor& scores, std::int64_t count) {
    expect_dtype(scores, Dtype::fp32, "index scores");
    MGPLAN_ASSERT(scores.shape().rank() == 2 && count > 0, "index scores have rows, of which some are chosen");
    Device& device = scores.device();
    MGPLAN_ASSERT(!device.computes(), "indexers are known of shapes alone");
    Tensor places =
        device.empty({scores.shape()[0], std::min(count, scores.shape()[1])}, Dtype::int32, MemoryCategory::activations, "chosen keys");
    device.report({"largest_places", 0, scores.bytes(), places.bytes()});
    return places;
}

}  // namespace mgplan::model
