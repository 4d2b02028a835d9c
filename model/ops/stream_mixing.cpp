#include "model/ops/stream_mixing.hpp"

#include "model/ops/checks.hpp"

namespace mgplan::model {
namespace {

std::int64_t width_of_stream(const Tensor& x, std::int64_t streams) {
    MGPLAN_ASSERT(streams > 0 && x.shape()[1] % streams == 0, "rows hold whole streams");
    return x.shape()[1] / streams;
}

}  // namespace

Tensor stream_lengths(const Tensor& x) {
    Device& device = known_of_shapes(x, "streams");
    Tensor lengths = device.empty({x.shape()[0]}, statistics_dtype(x.dtype()), MemoryCategory::activations, "stream lengths");
    device.report({"stream_lengths", 2 * element_count(x), x.bytes(), lengths.bytes()});
    return lengths;
}

void stream_lengths_backward(const Tensor& x, const Tensor& lengths, const Tensor& dx) {
    Device& device = known_of_shapes(x, "streams");
    expect_elements(lengths, x.shape()[0], "lengths of streams");
    expect_shape(dx, x.shape(), "gradient of streams");
    device.report({"stream_lengths_backward", 2 * element_count(x), total_bytes(x, lengths, dx), dx.bytes()});
}

Tensor stream_maps(const Tensor& raw, const Tensor& lengths) {
    Device& device = known_of_shapes(raw, "raw maps");
    expect_elements(lengths, raw.shape()[0], "lengths of streams");
    Tensor maps = device.empty(raw.shape(), raw.dtype(), MemoryCategory::activations, "stream maps");
    device.report({"stream_maps", 8 * element_count(raw), total_bytes(raw, lengths), maps.bytes()});
    return maps;
}

Tensor stream_maps_backward(const Tensor& d_maps, const Tensor& raw, const Tensor& lengths) {
    Device& device = known_of_shapes(raw, "raw maps");
    expect_shape(d_maps, raw.shape(), "gradient of maps");
    Tensor d_raw = device.empty(raw.shape(), raw.dtype(), MemoryCategory::activations, "raw map gradient");
    device.report({"stream_maps_backward", 12 * element_count(raw), total_bytes(d_maps, raw, lengths), d_raw.bytes()});
    return d_raw;
}

Tensor balance_maps(const Tensor& maps, std::int64_t streams, std::int64_t rounds) {
    Device& device = known_of_shapes(maps, "maps");
    MGPLAN_ASSERT(maps.shape()[1] == streams * (streams + 2), "a matrix stands behind two weights for each stream");
    Tensor start = device.empty({maps.shape()[0], streams * streams}, maps.dtype(), MemoryCategory::activations, "stream matrix");
    device.report({"balance_maps", 4 * element_count(start) * static_cast<double>(rounds), start.bytes(), 2 * start.bytes()});
    return start;
}

void balance_maps_backward(const Tensor& d_maps, const Tensor& start, std::int64_t rounds) {
    Device& device = known_of_shapes(start, "maps");
    expect_same_device(d_maps, start);
    device.report({"balance_maps_backward", 12 * element_count(start) * static_cast<double>(rounds), 2 * start.bytes(), start.bytes()});
}

Tensor gather_streams(const Tensor& x, const Tensor& maps, std::int64_t streams) {
    Device& device = known_of_shapes(x, "streams");
    expect_same_device(x, maps);
    Tensor y = device.empty({x.shape()[0], width_of_stream(x, streams)}, x.dtype(), MemoryCategory::activations, "gathered streams");
    device.report({"gather_streams", 2 * element_count(x), total_bytes(x, maps), y.bytes()});
    return y;
}

void gather_streams_backward(const Tensor& dy, const Tensor& x, const Tensor& maps, const Tensor& dx, const Tensor& d_maps) {
    Device& device = known_of_shapes(x, "streams");
    expect_shape(dx, x.shape(), "gradient of streams");
    expect_same_device(x, dy, maps, d_maps);
    device.report({"gather_streams_backward", 4 * element_count(x), total_bytes(dy, x, maps, dx), total_bytes(dx, d_maps)});
}

Tensor mix_streams(const Tensor& x, const Tensor& y, const Tensor& maps) {
    Device& device = known_of_shapes(x, "streams");
    const std::int64_t streams = x.shape()[1] / y.shape()[1];
    expect_shape(y, {x.shape()[0], width_of_stream(x, streams)}, "what is added to streams");
    expect_shape(maps, {x.shape()[0], streams * (streams + 2)}, "maps of streams");
    Tensor output = device.empty(x.shape(), x.dtype(), MemoryCategory::activations, "residual stream");
    device.report({"mix_streams", 2 * element_count(x) * static_cast<double>(streams + 1), total_bytes(x, y, maps), output.bytes()});
    return output;
}

MixGradients mix_streams_backward(const Tensor& d_output, const Tensor& x, const Tensor& y, const Tensor& maps) {
    Device& device = known_of_shapes(x, "streams");
    expect_shape(d_output, x.shape(), "gradient of streams");
    const auto streams = static_cast<double>(x.shape()[1] / y.shape()[1]);
    MixGradients gradients{device.empty(x.shape(), x.dtype(), MemoryCategory::activations, "residual stream gradient"),
                           device.empty(y.shape(), y.dtype(), MemoryCategory::activations, "branch gradient"),
                           device.empty(maps.shape(), maps.dtype(), MemoryCategory::activations, "stream map gradient")};
    device.report({"mix_streams_backward", 4 * element_count(x) * (streams + 1), total_bytes(d_output, x, y, maps),
                   total_bytes(gradients.dx, gradients.dy, gradients.d_maps)});
    return gradients;
}

void repeat_mixing(const Tensor& x, const Tensor& y, const Tensor& maps) {
    Device& device = known_of_shapes(x, "streams");
    const auto streams = static_cast<double>(x.shape()[1] / y.shape()[1]);
    device.report({"gather_streams", 2 * element_count(x), total_bytes(x, maps), y.bytes()});
    device.report({"mix_streams", 2 * element_count(x) * (streams + 1), total_bytes(x, y, maps), x.bytes()});
}

Tensor copy_to_streams(const Tensor& x, std::int64_t streams) {
    Device& device = known_of_shapes(x, "what streams begin with");
    Tensor y = device.empty({x.shape()[0], streams * x.shape()[1]}, x.dtype(), MemoryCategory::activations, "residual stream");
    device.report({"copy_to_streams", 0, x.bytes(), y.bytes()});
    return y;
}

Tensor sum_of_streams(const Tensor& x, std::int64_t streams, std::string_view name) {
    Device& device = known_of_shapes(x, "streams");
    Tensor y = device.empty({x.shape()[0], width_of_stream(x, streams)}, x.dtype(), MemoryCategory::activations, name);
    device.report({"sum_of_streams", element_count(x), x.bytes(), y.bytes()});
    return y;
}

}  // namespace mgplan::model
