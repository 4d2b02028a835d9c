#include "model/layers/fp8_weight.hpp"

#include "model/device/device.hpp"
#include "model/ops/fp8_history.hpp"

namespace mgplan::model {
namespace {

void cast_weight(const Fp8Weight& copies, const Tensor& weight) {
    if (copies.followed)
        raise_largest(weight, copies.followed->weight.largest);
    else
        find_largest(weight, copies.values.scale);
    quantise(weight, {copies.values.codes, copies.values.scale, copies.transposed});
}

}  // namespace

std::optional<Fp8Scaling> blocks_of_weights(OwnFp8 scaling) {
    if (scaling == OwnFp8::blockwise) return Fp8Scaling::squares_of_128;
    if (scaling == OwnFp8::mxfp8) return Fp8Scaling::vectors_of_32;
    return std::nullopt;
}

Fp8Scaling vectors_beside(const Fp8Weight& weight) {
    return weight.blocks->values.scaling == Fp8Scaling::vectors_of_32 ? Fp8Scaling::vectors_of_32 : Fp8Scaling::vectors_of_128;
}

namespace {

void refresh_blocks(const Fp8Weight::Blocks& copies, const Tensor& weight) {
    quantise_both_ways(weight, copies.values,
                       {copies.transposed.codes, copies.transposed.scales, copies.transposed.scaling, ColumnCodes::turned});
}

}  // namespace

std::shared_ptr<Fp8Weight> make_fp8_weight(Device& device, std::int64_t rows, std::int64_t columns, OwnFp8 scaling) {
    auto copies = std::make_shared<Fp8Weight>();
    if (const auto blocks = blocks_of_weights(scaling)) {
        copies->blocks = {empty_blocks(device, *blocks, rows, columns, MemoryCategory::parameters, "weight in fp8"),
                          empty_blocks(device, *blocks, columns, rows, MemoryCategory::parameters, "weight in fp8, transposed")};
        return copies;
    }
    copies->values.codes = device.empty({rows, columns}, Dtype::fp8, MemoryCategory::parameters, "weight in fp8");
    if (scaling == OwnFp8::current)
        copies->values.scale = device.empty({kFp8ScaleElements}, Dtype::fp32, MemoryCategory::parameters, "scale of a weight in fp8");
    copies->transposed = device.empty({columns, rows}, Dtype::fp8, MemoryCategory::parameters, "weight in fp8, transposed");
    return copies;
}

std::shared_ptr<Fp8Weight> make_stored_fp8_weight(Device& device, const Tensor& codes) {
    auto copies = std::make_shared<Fp8Weight>();
    copies->stored = true;
    copies->values.codes = codes;
    copies->transposed =
        device.empty({codes.shape()[1], codes.shape()[0]}, Dtype::fp8, MemoryCategory::parameters, "weight in fp8, transposed");
    return copies;
}

void refresh(Fp8Weight& copies, const Tensor& weight) {
    if (copies.fresh) return;
    copies.fresh = true;
    if (copies.blocks) return refresh_blocks(*copies.blocks, weight);
    if (copies.stored)
        transpose_codes(copies.values.codes, copies.transposed);
    else
        cast_weight(copies, weight);
}

Fp8Tensor to_fp8(const Tensor& x, Dtype dtype, Communicator* group, Fp8Copies copies, std::string_view name) {
    const Tensor scale = x.device().empty({kFp8ScaleElements}, Dtype::fp32, MemoryCategory::activations, "scale of fp8");
    Fp8Tensor cast = empty_codes(x, dtype, scale, copies, name);
    find_largest(x, cast.scale);
    if (group != nullptr && group->size() > 1) group->all_reduce(cast.scale.slice(0, 1), Reduction::maximum);
    quantise(x, cast);
    return cast;
}

Fp8Tensor to_fp8(const Tensor& x, Dtype dtype, const Fp8Followed& followed, Fp8Copies copies, std::string_view name) {
    Fp8Tensor cast = empty_codes(x, dtype, followed.scale, copies, name);
    raise_largest(x, followed.largest);
    quantise(x, cast);
    return cast;
}

}  // namespace mgplan::model
