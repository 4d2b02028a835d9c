#pragma once
// The kernels of the CPU: simple loops in a fixed order, for fp64, fp32 and bf16. They are the reference that other
// devices are compared with. model/ops defines what they compute, file by file.

#include "model/device/device.hpp"
#include "model/ops/kernel_table.hpp"

namespace mgplan::runtime::cpu {

[[nodiscard]] const model::KernelTable& kernels();

void matmul(model::Device& device, const model::MatmulArguments& arguments);
void largest(model::Device& device, const model::LargestArguments& arguments);
void quantise(model::Device& device, const model::QuantiseArguments& arguments);
void largest_of_arrays(model::Device& device, const model::LargestOfArraysArguments& arguments);
void quantise_arrays(model::Device& device, const model::QuantiseArraysArguments& arguments);
void quantise_blocks(model::Device& device, const model::QuantiseBlocksArguments& arguments);
void transpose_bytes(model::Device& device, const model::TransposeBytesArguments& arguments);
void follow_largest(model::Device& device, const model::FollowLargestArguments& arguments);
void grouped_matmul(model::Device& device, const model::GroupedMatmulArguments& arguments);
void grouped_matmul_accumulate(model::Device& device, const model::GroupedAccumulateArguments& arguments);
void norm(model::Device& device, const model::NormArguments& arguments);
void norm_backward(model::Device& device, const model::NormBackwardArguments& arguments);
void activation(model::Device& device, const model::ActivationArguments& arguments);
void activation_backward(model::Device& device, const model::ActivationBackwardArguments& arguments);
void xielu(model::Device& device, const model::XieluArguments& arguments);
void xielu_backward(model::Device& device, const model::XieluBackwardArguments& arguments);
void gate_rows(model::Device& device, const model::GateRowsArguments& arguments);
void gate_rows_backward(model::Device& device, const model::GateRowsBackwardArguments& arguments);
void add_bias(model::Device& device, const model::AddBiasArguments& arguments);
void bias_gradient(model::Device& device, const model::BiasGradientArguments& arguments);
void copy(model::Device& device, const model::ElementwiseArguments& arguments);
void add(model::Device& device, const model::ElementwiseArguments& arguments);
void scale(model::Device& device, const model::ScalarArguments& arguments);
void soft_cap(model::Device& device, const model::ScalarArguments& arguments);
void clip(model::Device& device, const model::ClipArguments& arguments);
void fill(model::Device& device, const model::ScalarArguments& arguments);
void fill_normal(model::Device& device, const model::FillNormalArguments& arguments);
void sums_of_squares(model::Device& device, const model::SumsOfSquaresArguments& arguments);
void add_in_order(model::Device& device, const model::ElementwiseArguments& arguments);
void clip_factor(model::Device& device, const model::ClipFactorArguments& arguments);
void copy_columns(model::Device& device, const model::ColumnsArguments& arguments);
void scale_columns(model::Device& device, const model::ScaleColumnsArguments& arguments);
void swap_leading(model::Device& device, const model::SwapLeadingArguments& arguments);
void join_latent_keys(model::Device& device, const model::JoinLatentKeysArguments& arguments);
void split_latent_keys(model::Device& device, const model::SplitLatentKeysArguments& arguments);
void embedding(model::Device& device, const model::EmbeddingArguments& arguments);
void embedding_backward(model::Device& device, const model::EmbeddingBackwardArguments& arguments);
void row_maximum(model::Device& device, const model::CrossEntropyArguments& arguments);
void softmax_sums(model::Device& device, const model::CrossEntropyArguments& arguments);
void token_losses(model::Device& device, const model::TokenLossesArguments& arguments);
void sum_of_losses(model::Device& device, const model::SumOfLossesArguments& arguments);
void cross_entropy_backward(model::Device& device, const model::CrossEntropyArguments& arguments);
void attention(model::Device& device, const model::AttentionArguments& arguments);
void attention_backward(model::Device& device, const model::AttentionBackwardArguments& arguments);
void merge_attention(model::Device& device, const model::MergeAttentionArguments& arguments);
void add_sinks(model::Device& device, const model::SinksArguments& arguments);
void sinks_gradient(model::Device& device, const model::SinksGradientArguments& arguments);
void rotary(model::Device& device, const model::RotaryArguments& arguments);
void dropout(model::Device& device, const model::DropoutArguments& arguments);
void adam_step(model::Device& device, const model::AdamArguments& arguments);
void momentum_step(model::Device& device, const model::MomentumArguments& arguments);
void route(model::Device& device, const model::RouteArguments& arguments);
void route_backward(model::Device& device, const model::RouteBackwardArguments& arguments);
void keep_within_capacity(model::Device& device, const model::CapacityArguments& arguments);
void auxiliary_loss(model::Device& device, const model::AuxiliaryLossArguments& arguments);
void auxiliary_loss_backward(model::Device& device, const model::AuxiliaryLossArguments& arguments);
void count_by_expert(model::Device& device, const model::CountByExpertArguments& arguments);
void sort_by_expert(model::Device& device, const model::SortByExpertArguments& arguments);
void permute_rows(model::Device& device, const model::PermuteArguments& arguments);
void unpermute_rows(model::Device& device, const model::PermuteArguments& arguments);
void permute_probabilities(model::Device& device, const model::PermuteArguments& arguments);
void unpermute_probabilities(model::Device& device, const model::PermuteArguments& arguments);
void reorder_blocks(model::Device& device, const model::ReorderBlocksArguments& arguments);
void causal_conv(model::Device& device, const model::CausalConvArguments& arguments);
void causal_conv_backward(model::Device& device, const model::CausalConvBackwardArguments& arguments);
void short_conv(model::Device& device, const model::ShortConvArguments& arguments);
void short_conv_backward(model::Device& device, const model::ShortConvBackwardArguments& arguments);
void gated_norm(model::Device& device, const model::GatedNormArguments& arguments);
void gated_norm_backward(model::Device& device, const model::GatedNormBackwardArguments& arguments);
void state_space_scan(model::Device& device, const model::StateSpaceArguments& arguments);
void state_space_scan_backward(model::Device& device, const model::StateSpaceBackwardArguments& arguments);
void delta_rule(model::Device& device, const model::DeltaRuleArguments& arguments);
void delta_rule_backward(model::Device& device, const model::DeltaRuleBackwardArguments& arguments);

}  // namespace mgplan::runtime::cpu
