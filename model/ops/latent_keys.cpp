#include "model/ops/latent_keys.hpp"

#include "model/ops/checks.hpp"
#include "model/ops/kernel_table.hpp"

namespace mgplan::model {

LatentKeys join_latent_keys(const Tensor& projected, const Tensor& shared, std::int64_t own) {
    expect_float(projected, "projection to latent keys");
    MGPLAN_ASSERT(projected.shape().rank() == 3 && own > 0 && own < projected.shape()[2], "each head has a key part and a value");
    const std::int64_t rows = projected.shape()[0], heads = projected.shape()[1], both = projected.shape()[2], v_dim = both - own;
    const std::int64_t width = shared.defined() ? shared.shape()[-1] : 0, k_dim = own + width;
    if (shared.defined()) {
        expect_shape(shared, {rows, width}, "shared part of latent keys");
        expect_dtype(shared, projected.dtype(), "shared part of latent keys");
    }
    expect_same_device(projected, shared);
    Device& device = projected.device();
    LatentKeys result{device.empty({rows, heads, k_dim}, projected.dtype(), MemoryCategory::activations, "keys"),
                      device.empty({rows, heads, v_dim}, projected.dtype(), MemoryCategory::activations, "values")};
    device.report({"join_latent_keys", 0, total_bytes(projected, shared), total_bytes(result.k, result.v)});
    if (device.computes() && rows > 0)
        device.kernels().join_latent_keys(device, {projected, shared, result.k, result.v, rows, heads, own, width, v_dim});
    return result;
}

LatentKeyGradients split_latent_keys(const Tensor& dk, const Tensor& dv, std::int64_t own) {
    expect_float(dk, "gradient of latent keys");
    expect_dtype(dv, dk.dtype(), "gradient of latent values");
    expect_same_device(dk, dv);
    MGPLAN_ASSERT(dk.shape().rank() == 3 && dv.shape().rank() == 3 && own > 0 && own <= dk.shape()[2],
                  "each head has a key part and a value");
    MGPLAN_ASSERT(dv.shape()[0] == dk.shape()[0] && dv.shape()[1] == dk.shape()[1], "keys and values have the same rows and heads");
    const std::int64_t rows = dk.shape()[0], heads = dk.shape()[1], k_dim = dk.shape()[2], v_dim = dv.shape()[2], width = k_dim - own;
    Device& device = dk.device();
    LatentKeyGradients result;
    result.projected = device.empty({rows, heads, own + v_dim}, dk.dtype(), MemoryCategory::activations, "projected keys gradient");
    if (width > 0) result.shared = device.empty({rows, width}, dk.dtype(), MemoryCategory::activations, "shared keys gradient");
    device.report({"split_latent_keys", static_cast<double>(rows * heads * width), total_bytes(dk, dv),
                   total_bytes(result.projected, result.shared), width > 0 ? 2 : 1});
    if (device.computes() && rows > 0)
        device.kernels().split_latent_keys(device, {dk, dv, result.projected, result.shared, rows, heads, own, width, v_dim});
    return result;
}

}  // namespace mgplan::model
