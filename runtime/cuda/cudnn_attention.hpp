#pragma once
// Flash attention of cuDNN.

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "runtime/cuda/ops/launch.hpp"

namespace mgplan::runtime::cuda {

/// Causal attention of bf16 through cuDNN's graph API. A plan is compiled once for each shape on a card of the process, which takes up to
/// a second or two, and the card's other ranks read it from the first one's text: each has a plan of its own handle, which no other
/// rank runs. A shape is refused if cuDNN does not start, if no engine takes it with the workspace given, or
/// if arrays are not aligned; the reason goes to stderr, once for each shape in the process, and the refusal of a shape is kept.
/// One thread, one stream, on the current card, whose ordinal `card` is. cuDNN starts with the first shape. nullptr in a build without
/// cuDNN, and where its library is not there.
[[nodiscard]] std::unique_ptr<FusedLibrary> make_cudnn_attention(cudaStream_t stream, int card);

/// Builds a plan on the current card, without sharing it, and returns the result: "a plan with 256 bytes of workspace, built in 0.41 s",
/// or the refusal.
[[nodiscard]] std::string try_cudnn_attention(const FusedShape& shape, std::int64_t workspace_bytes);

/// Reason why there is no plan for the shape within this workspace on the current card, whose ordinal `card` is, also if there is no
/// cuDNN; empty if there is a plan, which ranks on the card will read.
[[nodiscard]] std::string cudnn_attention_refusal(int card, const FusedShape& shape, std::int64_t workspace_bytes);

/// The card's properties as cuDNN's heuristics take them, JSON: plans can be built from them on a machine without a card.
/// Empty in a build without cuDNN. Throws RunError.
[[nodiscard]] std::string cudnn_device_properties(int ordinal);

/// Version of the cuDNN in use, "9.19.0"; empty in a build without, and where the library is not there.
[[nodiscard]] std::string cudnn_version();

}  // namespace mgplan::runtime::cuda
