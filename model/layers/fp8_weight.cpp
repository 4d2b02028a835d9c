#include "model/layers/fp8_weight.hpp"

#include <vector>

#include "model/device/device.hpp"
#include "model/ops/fp8_history.hpp"

namespace mgplan::model {
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

void refresh(std::span<const CopiedWeight> weights) {
    std::vector<RaisedLargest> found, raised;
    std::vector<const CopiedWeight*> casts;
    for (const CopiedWeight& each : weights) {
        const auto& [copies, weight] = each;
        if (copies->fresh) continue;
        copies->fresh = true;
        if (copies->blocks) {
            refresh_blocks(*copies->blocks, weight);
            continue;
        }
        if (copies->stored) {
            transpose_codes(copies->values.codes, copies->transposed);
            continue;
        }
        if (copies->followed)
            raised.push_back({weight, copies->followed->weight.largest});
        else
            found.push_back({weight, copies->values.scale.slice(0, 1)});
        casts.push_back(&each);
    }
    find_all_largest(found);
    raise_all_largest(raised);
    for (const CopiedWeight* each : casts) {
        const Fp8Weight& copies = *each->copies;
        quantise(each->weight, {copies.values.codes, copies.values.scale, copies.transposed});
    }
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
