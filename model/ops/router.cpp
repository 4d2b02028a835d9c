#include "model/ops/router.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/core.h>

#include "model/ops/checks.hpp"
#include "model/ops/kernel_table.hpp"
#include "model/ops/scratch.hpp"

namespace mgplan::model {
namespace {

/// factor before Σ_e copies_e · Σ_rows p_e.
double auxiliary_factor(const Tensor& scores, const Tensor& copies, std::int64_t rows, std::int64_t top_k, double coefficient) {
    expect_float(scores, "router scores");
    MGPLAN_ASSERT(scores.shape().rank() == 2, "router scores have rows and experts");
    expect_dtype(copies, Dtype::int32, "copies of each expert");
    expect_shape(copies, {scores.shape()[1]}, "copies of each expert");
    expect_same_device(scores, copies);
    MGPLAN_ASSERT(rows >= 1 && top_k >= 1, "there are tokens with experts");
    const auto all_rows = static_cast<double>(rows);
    return coefficient * static_cast<double>(copies.elements()) / (all_rows * all_rows * static_cast<double>(top_k));
}

/// Counts the ids in `experts` into `counts`, or adds to them.
void count_into(const Tensor& experts, const Tensor& counts, bool adds) {
    expect_dtype(experts, Dtype::int32, "chosen experts");
    Device& device = experts.device();
    device.report({"count_by_expert", 0, experts.bytes() + (adds ? counts.bytes() : 0), counts.bytes()});
    if (device.computes()) device.kernels().count_by_expert(device, {experts, counts, experts.elements(), counts.elements(), adds});
}

std::int64_t expect_source(const Permutation& permutation) {
    expect_dtype(permutation.source, Dtype::int32, "source of a permutation");
    MGPLAN_ASSERT(permutation.source.shape().rank() == 1, "the source of a permutation is a list");
    return permutation.source.elements();
}

}  // namespace

Routing route(const Tensor& logits, std::int64_t top_k, RouterScore score, bool balanced, const ExpertChoice& choice) {
    expect_float(logits, "router logits");
    MGPLAN_ASSERT(logits.shape().rank() == 2, "router logits have rows and experts");
    const std::int64_t rows = logits.shape()[0], experts = logits.shape()[1];
    MGPLAN_ASSERT(top_k >= 1 && top_k <= experts, fmt::format("{} of {} experts are chosen", top_k, experts));
    Device& device = logits.device();
    const Dtype kept = statistics_dtype(logits.dtype());
    if (choice.groups > 0) {
        MGPLAN_ASSERT(choice.groups <= ExpertChoice::most_groups && experts % choice.groups == 0, "experts come in equal groups");
        MGPLAN_ASSERT(choice.group_top_k >= 1 && choice.group_top_k <= choice.groups, "some of the groups are taken");
        MGPLAN_ASSERT(choice.group_top_k * (experts / choice.groups) >= top_k, "the groups taken hold enough experts");
    }
    if (choice.bias.defined()) {
        expect_shape(choice.bias, {experts}, "expert bias");
        expect_dtype(choice.bias, kept, "expert bias");
        expect_same_device(logits, choice.bias);
    }
    std::int64_t counted = 0;
    if (choice.groups > 0) {
        counted = choice.group_scores > 0 ? choice.group_scores : top_k / choice.group_top_k;
        counted = std::clamp<std::int64_t>(counted, 1, experts / choice.groups);
    }
    Routing routing{device.empty({rows, top_k}, Dtype::int32, MemoryCategory::activations, "chosen experts"),
                    device.empty({rows, top_k}, kept, MemoryCategory::activations, "router probabilities"),
                    device.empty({rows, experts}, kept, MemoryCategory::activations, "router scores")};
    device.report({"route", 5.0 * static_cast<double>(logits.elements()), logits.bytes(),
                   total_bytes(routing.experts, routing.probabilities, routing.scores)});
    if (device.computes() && rows > 0) {
        device.kernels().route(
            device, {logits, routing.experts, routing.probabilities, routing.scores, rows, experts, top_k, score, balanced, choice.bias,
                     choice.groups, choice.group_top_k, counted, choice.normalised && (score == RouterScore::softmax || top_k > 1)});
    }
    return routing;
}

Tensor route_backward(const Tensor& d_probabilities, const Routing& routing, RouterScore score, bool normalised) {
    expect_float(routing.scores, "router scores");
    MGPLAN_ASSERT(routing.scores.shape().rank() == 2 && routing.experts.shape().rank() == 2, "a routing has rows");
    const std::int64_t rows = routing.scores.shape()[0], experts = routing.scores.shape()[1], top_k = routing.experts.shape()[1];
    const Dtype kept = routing.scores.dtype();
    expect_dtype(routing.experts, Dtype::int32, "chosen experts");
    expect_shape(routing.experts, {rows, top_k}, "chosen experts");
    expect_dtype(routing.probabilities, kept, "router probabilities");
    expect_shape(routing.probabilities, {rows, top_k}, "router probabilities");
    expect_dtype(d_probabilities, kept, "gradient of the router probabilities");
    expect_elements(d_probabilities, rows * top_k, "gradient of the router probabilities");
    expect_same_device(routing.scores, routing.experts, routing.probabilities, d_probabilities);
    Device& device = routing.scores.device();
    Tensor d_logits = device.empty({rows, experts}, kept, MemoryCategory::activations, "router logit gradient");
    device.report({"route_backward", 4.0 * static_cast<double>(rows * top_k),
                   total_bytes(d_probabilities, routing.experts, routing.probabilities, routing.scores), d_logits.bytes()});
    if (device.computes() && rows > 0) {
        device.kernels().route_backward(device, {d_probabilities, routing.experts, routing.probabilities, routing.scores, d_logits, rows,
                                                 experts, top_k, score, normalised && (score == RouterScore::softmax || top_k > 1)});
    }
    return d_logits;
}

Tensor keep_within_capacity(const Routing& routing, std::int64_t capacity) {
    expect_dtype(routing.experts, Dtype::int32, "chosen experts");
    expect_float(routing.probabilities, "router probabilities");
    expect_elements(routing.probabilities, routing.experts.elements(), "router probabilities");
    MGPLAN_ASSERT(capacity >= 1 && routing.scores.shape().rank() == 2, "experts have room for a row");
    Device& device = routing.experts.device();
    Tensor kept = device.empty(routing.experts.shape(), Dtype::int32, MemoryCategory::activations, "experts within capacity");
    device.report({"keep_within_capacity", 0, total_bytes(routing.experts, routing.probabilities), kept.bytes(), 5});
    const std::int64_t entries = kept.elements(), experts = routing.scores.shape()[1];
    if (entries == 0) return kept;
    const Tensor scratch = take_scratch(device, capacity_scratch_bytes(device.traits(), entries, experts), "entries by expert");
    if (device.computes()) {
        device.kernels().keep_within_capacity(device, {routing.experts, routing.probabilities, kept, entries, experts, capacity, scratch});
    }
    return kept;
}

Tensor count_by_expert(const Tensor& experts, std::int64_t expert_count) {
    MGPLAN_ASSERT(expert_count >= 1, "there are experts");
    Tensor counts = experts.device().empty({expert_count}, Dtype::int32, MemoryCategory::activations, "choices of each expert");
    count_into(experts, counts, false);
    return counts;
}

void add_counts_by_expert(const Tensor& experts, const Tensor& counts) {
    expect_dtype(counts, Dtype::int32, "choices of each expert");
    MGPLAN_ASSERT(counts.elements() >= 1, "there are experts");
    expect_same_device(experts, counts);
    count_into(experts, counts, true);
}

void auxiliary_loss(const Tensor& scores, RouterScore score, const Tensor& copies, std::int64_t rows, std::int64_t top_k,
                    double coefficient, const Tensor& total) {
    const double factor = auxiliary_factor(scores, copies, rows, top_k, coefficient);
    expect_dtype(total, Dtype::fp64, "sum of auxiliary losses");
    expect_shape(total, {1}, "sum of auxiliary losses");
    expect_same_device(scores, total);
    Device& device = scores.device();
    device.report({"auxiliary_loss", 3.0 * static_cast<double>(scores.elements()), scores.bytes() + copies.bytes(), total.bytes(), 2});
    if (scores.elements() == 0) return;
    const Tensor scratch = take_scratch(device, auxiliary_loss_scratch_bytes(device.traits(), scores.shape()[0]), "auxiliary loss");
    if (device.computes()) {
        device.kernels().auxiliary_loss(device, {scores, copies, {}, scores.shape()[0], scores.shape()[1], score, factor, total, scratch});
    }
}

void auxiliary_loss_backward(const Tensor& scores, RouterScore score, const Tensor& copies, std::int64_t rows, std::int64_t top_k,
                             double coefficient, double d_loss, const Tensor& d_logits) {
    const double factor = auxiliary_factor(scores, copies, rows, top_k, coefficient) * d_loss;
    expect_dtype(d_logits, scores.dtype(), "gradient of the router logits");
    expect_shape(d_logits, scores.shape(), "gradient of the router logits");
    expect_same_device(scores, d_logits);
    Device& device = scores.device();
    device.report(
        {"auxiliary_loss_backward", 6.0 * static_cast<double>(scores.elements()), total_bytes(scores, copies, d_logits), d_logits.bytes()});
    if (device.computes() && scores.elements() > 0)
        device.kernels().auxiliary_loss_backward(device, {scores, copies, d_logits, scores.shape()[0], scores.shape()[1], score, factor});
}

Permutation sort_by_expert(const Tensor& experts, const Tensor& counts, std::int64_t copies) {
    expect_dtype(experts, Dtype::int32, "chosen experts");
    expect_dtype(counts, Dtype::int32, "choices of each expert");
    expect_same_device(experts, counts);
    MGPLAN_ASSERT(counts.elements() >= 1, "there are experts");
    MGPLAN_ASSERT(copies >= 0 && copies <= experts.elements(), "no more copies than choices");
    Device& device = experts.device();
    const std::int64_t expert_count = counts.elements();
    Permutation permutation{device.empty({copies}, Dtype::int32, MemoryCategory::activations, "token permutation")};
    const Tensor scratch = take_scratch(device, expert_scratch_bytes(device.traits(), expert_count), "first copies of each expert");
    device.report({"sort_by_expert", 0, experts.bytes() + counts.bytes(), permutation.source.bytes(), 2});
    if (device.computes() && copies > 0)
        device.kernels().sort_by_expert(device, {experts, counts, permutation.source, experts.elements(), expert_count, 0, scratch});
    return permutation;
}

Permutation sort_and_pad(const Tensor& experts, std::int64_t expert_count, std::int64_t capacity) {
    expect_dtype(experts, Dtype::int32, "chosen experts");
    MGPLAN_ASSERT(expert_count >= 1 && capacity >= 0, "there are experts with room");
    Device& device = experts.device();
    Permutation permutation{device.empty({expert_count * capacity}, Dtype::int32, MemoryCategory::activations, "token permutation")};
    const Tensor scratch = take_scratch(device, expert_scratch_bytes(device.traits(), expert_count), "first copies of each expert");
    device.report({"sort_by_expert", 0, experts.bytes(), permutation.source.bytes(), 3});
    if (device.computes() && permutation.source.elements() > 0)
        device.kernels().sort_by_expert(device, {experts, {}, permutation.source, experts.elements(), expert_count, capacity, scratch});
    return permutation;
}

Tensor permute_rows(const Tensor& x, const Permutation& permutation, std::int64_t top_k) {
    const std::int64_t copies = expect_source(permutation);
    MGPLAN_ASSERT(x.defined() && is_float(x.dtype()) && x.shape().rank() == 2, "x of permute_rows has rows of floats");
    MGPLAN_ASSERT(top_k >= 1, "rows have copies");
    expect_same_device(x, permutation.source);
    Device& device = x.device();
    const std::int64_t width = x.shape()[1];
    Tensor y = device.empty({copies, width}, x.dtype(), MemoryCategory::activations, "permuted rows");
    device.report({"permute_rows", 0, y.bytes() + permutation.source.bytes(), y.bytes()});
    if (device.computes() && y.elements() > 0) {
        device.kernels().permute_rows(device, {x, permutation.source, y, {}, copies, x.shape()[0], top_k, width});
    }
    return y;
}

Tensor unpermute_rows(const Tensor& copies, const Permutation& permutation, std::int64_t rows, std::int64_t top_k) {
    const std::int64_t count = expect_source(permutation);
    MGPLAN_ASSERT(copies.defined() && is_float(copies.dtype()) && copies.shape().rank() == 2, "the copies are rows of floats");
    MGPLAN_ASSERT(copies.shape()[0] == count, "the permutation has an entry for each copy");
    MGPLAN_ASSERT(rows >= 0 && top_k >= 1, "rows have copies");
    expect_same_device(copies, permutation.source);
    Device& device = copies.device();
    const std::int64_t width = copies.shape()[1];
    Tensor y = device.empty({rows, width}, copies.dtype(), MemoryCategory::activations, "unpermuted rows");
    const Tensor inverse = device.empty({rows * top_k}, Dtype::int32, MemoryCategory::workspace, "inverse permutation");
    device.report({"unpermute_rows", static_cast<double>(copies.elements()), copies.bytes() + permutation.source.bytes(), y.bytes(), 3});
    if (device.computes() && y.elements() > 0) {
        device.kernels().unpermute_rows(device, {copies, permutation.source, y, inverse, count, rows, top_k, width});
    }
    return y;
}

Tensor permute_probabilities(const Tensor& probabilities, const Permutation& permutation) {
    const std::int64_t copies = expect_source(permutation);
    expect_float(probabilities, "probabilities");
    expect_same_device(probabilities, permutation.source);
    Device& device = probabilities.device();
    Tensor y = device.empty({copies}, probabilities.dtype(), MemoryCategory::activations, "permuted probabilities");
    device.report({"permute_probabilities", 0, y.bytes() + permutation.source.bytes(), y.bytes()});
    if (device.computes() && copies > 0) {
        device.kernels().permute_probabilities(device, {probabilities, permutation.source, y, {}, copies, probabilities.elements(), 1, 1});
    }
    return y;
}

Tensor unpermute_probabilities(const Tensor& permuted, const Permutation& permutation, std::int64_t rows, std::int64_t top_k) {
    const std::int64_t copies = expect_source(permutation);
    expect_float(permuted, "permuted probabilities");
    expect_elements(permuted, copies, "permuted probabilities");
    MGPLAN_ASSERT(rows >= 0 && top_k >= 1, "rows have copies");
    expect_same_device(permuted, permutation.source);
    Device& device = permuted.device();
    Tensor y = device.empty({rows, top_k}, permuted.dtype(), MemoryCategory::activations, "unpermuted probabilities");
    device.report({"unpermute_probabilities", 0, permuted.bytes() + permutation.source.bytes(), y.bytes(), 2});
    if (device.computes() && y.elements() > 0) {
        device.kernels().unpermute_probabilities(device, {permuted, permutation.source, y, {}, copies, rows, top_k, 1});
    }
    return y;
}

namespace {

/// Checks block_rows and order, with which a kernel could write outside its rows. Called only on devices that compute: on shapes, a search
/// records thousands of blocks.
void expect_every_block_once(const std::vector<std::int64_t>& block_rows, const std::vector<std::int64_t>& order) {
    MGPLAN_ASSERT(std::ranges::all_of(block_rows, [](std::int64_t rows) { return rows >= 0; }), "blocks have rows");
    std::vector<char> seen(block_rows.size(), 0);  // bytes are quicker than bits
    for (const auto block : order) {
        MGPLAN_ASSERT(block >= 0 && block < std::ssize(block_rows) && seen[static_cast<std::size_t>(block)] == 0,
                      "the order names every block once");
        seen[static_cast<std::size_t>(block)] = 1;
    }
}

}  // namespace

Tensor reorder_blocks(const Tensor& x, const std::vector<std::int64_t>& block_rows, const std::vector<std::int64_t>& order,
                      std::int64_t blocks) {
    MGPLAN_ASSERT(x.defined() && x.shape().rank() >= 1, "x of reorder_blocks has rows");
    MGPLAN_ASSERT(block_rows.size() == order.size(), "the order names every block once");
    MGPLAN_ASSERT(std::accumulate(block_rows.begin(), block_rows.end(), std::int64_t{0}) == x.shape()[0], "the blocks are all of x");
    Device& device = x.device();
    Tensor y = device.empty(x.shape(), x.dtype(), MemoryCategory::activations, "reordered blocks");
    const std::int64_t named = std::ranges::count_if(block_rows, [](std::int64_t rows) { return rows > 0; });
    MGPLAN_ASSERT(blocks == 0 || blocks == named || !device.computes(), "where rows move, the list names every block");
    device.report({"reorder_blocks", 0, x.bytes(), y.bytes(), launches_for_arrays(std::max(named, blocks))});
    if (device.computes() && x.elements() > 0) {
        expect_every_block_once(block_rows, order);
        device.kernels().reorder_blocks(device, {x, y, block_rows.data(), order.data(), std::ssize(block_rows), x.bytes() / x.shape()[0]});
    }
    return y;
}

}  // namespace mgplan::model
