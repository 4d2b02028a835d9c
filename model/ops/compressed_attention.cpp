#include "model/ops/compressed_attention.hpp"

#include <algorithm>

#include "model/ops/checks.hpp"

namespace mgplan::model {
namespace {

/// The least that attention to chosen keys takes: its softmax and sums of its keys' gradients come on top. The backward has the scores
/// again, one of its five products.
constexpr Arithmetic kOfChosenKeys{.small_products = true, .model_share = 1},
    kOfChosenKeysBackward{.small_products = true, .model_share = 0.8};

Device& expect_tokens(const Tensor& tokens, const Tensor& gates, const Tensor& places, Compression compression, std::int64_t batch) {
    Device& device = known_of_shapes(tokens, "tokens to compress");
    expect_shape(gates, tokens.shape(), "gates of compression");
    expect_shape(places, {compression.rate, tokens.shape()[1]}, "places of a window");
    expect_same_device(tokens, gates, places);
    MGPLAN_ASSERT(batch > 0 && tokens.shape()[0] % batch == 0, "sequences have rows alike");
    MGPLAN_ASSERT(compression.keys(tokens.shape()[0] / batch) > 0, "a sequence has at least one whole window");
    MGPLAN_ASSERT(tokens.shape()[1] % compression.columns(1) == 0, "both windows of a key are as wide");
    return device;
}

Shape keys_shape(const Tensor& tokens, Compression compression, std::int64_t batch) {
    return {compression.keys(tokens.shape()[0] / batch) * batch, tokens.shape()[1] / compression.columns(1)};
}

Device& expect_sight(const Tensor& q, const Tensor& keys, const Tensor& compressed, const Tensor& chosen, const SparseSight& sight,
                     std::int64_t batch) {
    Device& device = known_of_shapes(keys, "keys of sparse attention");
    expect_float(q, "queries of sparse attention");
    MGPLAN_ASSERT(q.shape().rank() == 3 && batch > 0 && q.shape()[0] % batch == 0, "queries have heads, and sequences rows alike");
    const std::int64_t rows = q.shape()[0], width = q.shape()[2];
    expect_shape(keys, {rows, width}, "keys of sparse attention");
    MGPLAN_ASSERT(sight.window > 0, "a query sees itself");
    MGPLAN_ASSERT(compressed.defined() == (sight.rate > 0), "compressed keys have a rate");
    MGPLAN_ASSERT(!chosen.defined() || compressed.defined(), "keys are chosen out of compressed ones");
    if (compressed.defined()) expect_shape(compressed, {rows / batch / sight.rate * batch, width}, "compressed keys");
    if (chosen.defined()) {
        expect_dtype(chosen, Dtype::int32, "chosen keys");
        expect_shape(chosen, {rows, std::min(sight.most, rows / batch / sight.rate)}, "chosen keys");
    }
    return device;
}

/// FLOPs of one product over all pairs.
double product_flops(const Tensor& q, const SparseSight& sight, std::int64_t batch) {
    const double heads = static_cast<double>(q.shape()[1] * batch), width = static_cast<double>(q.shape()[2]);
    return 2 * heads * width * sight.pairs(q.shape()[0] / batch);
}

/// Σ over t in [1, last] of min(t, most).
double ramp(double last, double most) {
    return last <= most ? last * (last + 1) / 2 : most * (most + 1) / 2 + (last - most) * most;
}

}  // namespace

double SparseSight::pairs(std::int64_t places) const {
    const auto s = static_cast<double>(places);
    double seen = ramp(s, static_cast<double>(window));
    if (rate == 0) return seen;
    // Σ over t in [1, s] of min(floor(t / rate), top): each value of the floor occurs `rate` times, the largest from its first place on.
    const std::int64_t all = places / rate, top = most > 0 ? std::min(most, all) : all;
    const auto r = static_cast<double>(rate), k = static_cast<double>(top);
    if (top > 0) seen += r * (k - 1) * k / 2 + k * (s - k * r + 1);
    return seen;
}

Tensor compress_keys(const Tensor& tokens, const Tensor& gates, const Tensor& places, Compression compression, std::int64_t batch) {
    Device& device = expect_tokens(tokens, gates, places, compression, batch);
    Tensor keys = device.empty(keys_shape(tokens, compression, batch), tokens.dtype(), MemoryCategory::activations, "compressed keys");
    // Per value: place added, exponential, sum, product, sum.
    device.report({"compress_keys", 5 * element_count(tokens), total_bytes(tokens, gates, places), keys.bytes()});
    return keys;
}

CompressionGradients compress_keys_backward(const Tensor& d_keys, const Tensor& tokens, const Tensor& gates, const Tensor& places,
                                            const Tensor& places_gradient, Compression compression, std::int64_t batch) {
    Device& device = expect_tokens(tokens, gates, places, compression, batch);
    expect_shape(d_keys, keys_shape(tokens, compression, batch), "gradient of compressed keys");
    CompressionGradients gradients{
        device.empty(tokens.shape(), tokens.dtype(), MemoryCategory::activations, "gradient of compressed tokens"),
        device.empty(gates.shape(), gates.dtype(), MemoryCategory::activations, "gradient of compression gates")};
    device.report({"compress_keys_backward", 10 * element_count(tokens), total_bytes(d_keys, tokens, gates, places),
                   total_bytes(gradients.tokens, gradients.gates, places_gradient)});
    return gradients;
}

AttentionResult sparse_attention(const Tensor& q, const Tensor& keys, const Tensor& compressed, const Tensor& chosen, const Tensor& sinks,
                                 const SparseSight& sight, std::int64_t batch) {
    Device& device = expect_sight(q, keys, compressed, chosen, sight, batch);
    expect_shape(sinks, {q.shape()[1]}, "sinks of sparse attention");
    AttentionResult result{device.empty(q.shape(), q.dtype(), MemoryCategory::activations, "sparse attention output"),
                           device.empty({q.shape()[0], q.shape()[1]}, statistics_dtype(q.dtype()), MemoryCategory::activations,
                                        "sparse attention log-sum-exp")};
    device.report({"sparse_attention", 2 * product_flops(q, sight, batch), total_bytes(q, keys, compressed, chosen, sinks),
                   total_bytes(result.output, result.log_sum_exp)},
                  kOfChosenKeys);
    return result;
}

SparseAttentionGradients sparse_attention_backward(const Tensor& d_output, const Tensor& q, const Tensor& keys, const Tensor& compressed,
                                                   const Tensor& chosen, const AttentionResult& result, const Tensor& sinks_gradient,
                                                   const SparseSight& sight, std::int64_t batch) {
    Device& device = expect_sight(q, keys, compressed, chosen, sight, batch);
    expect_shape(d_output, q.shape(), "output gradient of sparse attention");
    expect_shape(sinks_gradient, {q.shape()[1]}, "gradient of the sinks");
    SparseAttentionGradients gradients;
    gradients.q = device.empty(q.shape(), q.dtype(), MemoryCategory::activations, "query gradient of sparse attention");
    gradients.keys = device.empty(keys.shape(), keys.dtype(), MemoryCategory::activations, "key gradient of sparse attention");
    if (compressed.defined())
        gradients.compressed =
            device.empty(compressed.shape(), compressed.dtype(), MemoryCategory::activations, "gradient of compressed keys");
    device.report({"sparse_attention_backward", 5 * product_flops(q, sight, batch),
                   total_bytes(d_output, q, keys, compressed, chosen, result.output, result.log_sum_exp),
                   total_bytes(gradients.q, gradients.keys, gradients.compressed, sinks_gradient)},
                  kOfChosenKeysBackward);
    return gradients;
}

}  // namespace mgplan::model
