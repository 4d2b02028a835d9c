#include "model/ops/alternating_updates.hpp"

#include "model/ops/checks.hpp"
#include "model/ops/stream_mixing.hpp"

namespace mgplan::model {
namespace {

Tensor activations_like(const Tensor& like, const Shape& shape, std::string_view name) {
    return like.device().empty(shape, like.dtype(), MemoryCategory::activations, name);
}

/// Streams of x after the first, as (rows, (n - 1)·h).
Tensor further_streams(const Tensor& x, std::int64_t streams) {
    const std::int64_t rows = x.shape()[0], width = x.shape()[1] / streams;
    return x.view({streams * rows, width}).slice(rows, streams * rows).view({rows, (streams - 1) * width});
}

}  // namespace

Tensor stream_of(const Tensor& x, std::int64_t streams, std::int64_t i) {
    const std::int64_t rows = x.shape()[0];
    MGPLAN_ASSERT(x.shape()[1] % streams == 0 && i < streams, "rows hold whole streams");
    return x.view({streams * rows, x.shape()[1] / streams}).slice(i * rows, (i + 1) * rows);
}

Tensor squash(const Tensor& x) {
    Device& device = known_of_shapes(x, "a router's values");
    Tensor y = activations_like(x, x.shape(), "squashed values");
    device.report({"squash", 10 * element_count(x), x.bytes(), y.bytes()});
    return y;
}

Tensor squash_backward(const Tensor& dy, const Tensor& y) {
    Device& device = known_of_shapes(y, "a router's values");
    Tensor dx = activations_like(y, y.shape(), "gradient in front of squashing");
    device.report({"squash_backward", 3 * element_count(y), total_bytes(dy, y), dx.bytes()});
    return dx;
}

Tensor predict_streams(const Tensor& x, const Tensor& matrices, std::int64_t streams) {
    Device& device = known_of_shapes(x, "streams");
    expect_shape(matrices, {x.shape()[0], streams * streams}, "matrices of streams");
    Tensor y = activations_like(x, x.shape(), "predicted streams");
    device.report({"predict_streams", (2 * static_cast<double>(streams) + 1) * element_count(x), total_bytes(x, matrices), y.bytes()});
    return y;
}

PredictionGradients predict_streams_backward(const Tensor& dy, const Tensor& x, const Tensor& matrices, std::int64_t streams) {
    Device& device = known_of_shapes(x, "streams");
    expect_shape(dy, x.shape(), "gradient of predicted streams");
    expect_shape(matrices, {x.shape()[0], streams * streams}, "matrices of streams");
    PredictionGradients gradients{activations_like(x, x.shape(), "residual stream gradient"),
                                  activations_like(x, matrices.shape(), "gradient of matrices of streams")};
    device.report({"predict_streams_backward", (4 * static_cast<double>(streams) + 1) * element_count(x), total_bytes(dy, x, matrices),
                   total_bytes(gradients.dx, gradients.d_matrices)});
    return gradients;
}

Tensor correct_streams(const Tensor& predictions, const Tensor& y, const Tensor& weights) {
    Device& device = known_of_shapes(predictions, "predicted streams");
    expect_shape(y, {predictions.shape()[0], predictions.shape()[1] / weights.shape()[1]}, "what a layer gives");
    Tensor corrected = activations_like(predictions, predictions.shape(), "residual stream");
    device.report({"correct_streams", 3 * element_count(predictions), total_bytes(predictions, y, weights), corrected.bytes()});
    return corrected;
}

CorrectionGradients correct_streams_backward(const Tensor& d_streams, const Tensor& predictions, const Tensor& y, const Tensor& weights) {
    Device& device = known_of_shapes(d_streams, "gradient of streams");
    expect_shape(d_streams, predictions.shape(), "gradient of streams");
    CorrectionGradients gradients{activations_like(y, y.shape(), "gradient of what a layer gives"),
                                  activations_like(y, weights.shape(), "gradient of corrections")};
    device.report({"correct_streams_backward", 5 * element_count(d_streams), total_bytes(d_streams, y, y, weights),
                   total_bytes(gradients.dy, gradients.dy, gradients.d_weights)});
    return gradients;
}

void add_to_further_streams(const Tensor& y, const Tensor& x, std::int64_t streams) {
    Device& device = known_of_shapes(x, "streams");
    const Tensor others = further_streams(x, streams);
    expect_shape(y, {x.shape()[0], x.shape()[1] / streams}, "what is added to streams");
    device.report({"add_to_further_streams", element_count(others), total_bytes(others, y), others.bytes()});
}

Tensor sum_of_further_streams(const Tensor& dx, std::int64_t streams) {
    return sum_of_streams(further_streams(dx, streams), streams - 1, "gradient of layer inputs");
}

Tensor weigh_corrected(const Tensor& x, const Tensor& weights) {
    Device& device = known_of_shapes(x, "a corrected stream");
    expect_elements(weights, x.shape()[1], "weights of columns");
    Tensor y = activations_like(x, x.shape(), "weighed stream");
    device.report({"weigh_corrected", element_count(x), total_bytes(x, weights), y.bytes()});
    return y;
}

void weigh_corrected_backward(const Tensor& dy, const Tensor& prediction, const Tensor& given, const Tensor& weights, const Tensor& dx,
                              const Tensor& d_weights) {
    Device& device = known_of_shapes(dy, "gradient of a weighed stream");
    for (const Tensor& one : {prediction, given, dx}) expect_shape(one, dy.shape(), "a stream");
    expect_elements(d_weights, dy.shape()[1], "gradient of weights of columns");
    device.report({"weigh_corrected_backward", 7 * element_count(dy),
                   total_bytes(dy, prediction, given, dx) + total_bytes(weights, d_weights), total_bytes(dx, d_weights)});
}

void match_lengths(const Tensor& x, const Tensor& like, const Tensor& into) {
    Device& device = known_of_shapes(x, "rows to match");
    expect_shape(like, x.shape(), "rows whose length counts");
    expect_shape(into, x.shape(), "matched rows");
    device.report({"match_lengths", 5 * element_count(x), total_bytes(x, like), into.bytes()});
}

Tensor match_lengths_backward(const Tensor& dy, const Tensor& x, const Tensor& like, const Tensor& d_like) {
    Device& device = known_of_shapes(x, "rows to match");
    expect_shape(dy, x.shape(), "gradient of matched rows");
    expect_shape(d_like, like.shape(), "gradient of rows whose length counts");
    Tensor dx = activations_like(x, x.shape(), "gradient of rows to match");
    device.report({"match_lengths_backward", 10 * element_count(x), total_bytes(dy, x, like, d_like), total_bytes(dx, d_like)});
    return dx;
}

}  // namespace mgplan::model
