#include "model/ops/latent_keys.hpp"

#include "model/ops/checks.hpp"
#include "model/ops/kernel_table.hpp"

namespace mgplan::model {
namespace {

/// `width` columns of every row, from one place to another; pitches are those of the tensors seen as (rows, pitch).
void move_columns(Device& device, const Tensor& from, std::int64_t from_pitch, std::int64_t from_begin, const Tensor& to,
                  std::int64_t to_pitch, std::int64_t to_begin, std::int64_t width) {
    if (width > 0)
        device.kernels().copy_columns(device, {from, to, from.elements() / from_pitch, width, from_pitch, from_begin, to_pitch, to_begin});
}

}  // namespace

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
    device.report({"join_latent_keys", 0, total_bytes(projected, shared), total_bytes(result.k, result.v), 2 + (width > 0 ? heads : 0)});
    if (!device.computes() || rows == 0) return result;
    move_columns(device, projected, both, 0, result.k, k_dim, 0, own);
    move_columns(device, projected, both, own, result.v, v_dim, 0, v_dim);
    for (std::int64_t head = 0; head < heads && width > 0; ++head)
        move_columns(device, shared, width, 0, result.k, heads * k_dim, head * k_dim + own, width);
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
    Tensor sum, of_head;
    if (width > 0) {
        result.shared = device.empty({rows, width}, dk.dtype(), MemoryCategory::activations, "shared keys gradient");
        sum = device.zeros({rows, width}, statistics_dtype(dk.dtype()), MemoryCategory::workspace, "sum over heads");
        of_head = device.empty({rows, width}, dk.dtype(), MemoryCategory::workspace, "one head's share");
    }
    device.report({"split_latent_keys", static_cast<double>(rows * heads * width), total_bytes(dk, dv),
                   total_bytes(result.projected, result.shared), 2 + (width > 0 ? 2 * heads + 1 : 0)});
    if (!device.computes() || rows == 0) return result;
    move_columns(device, dk, k_dim, 0, result.projected, own + v_dim, 0, own);
    move_columns(device, dv, v_dim, 0, result.projected, own + v_dim, own, v_dim);
    if (width == 0) return result;
    for (std::int64_t head = 0; head < heads; ++head) {
        move_columns(device, dk, heads * k_dim, head * k_dim + own, of_head, width, 0, width);
        device.kernels().add(device, {of_head, sum, sum.elements()});
    }
    device.kernels().copy(device, {sum, result.shared, sum.elements()});
    return result;
}

}  // namespace mgplan::model
