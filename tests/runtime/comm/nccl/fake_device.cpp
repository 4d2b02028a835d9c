// A device of host memory that computes as the CPU does, with the fake CUDA's stream: what is called while that is captured runs when
// the graph is launched.

#include <cstdlib>
#include <cstring>
#include <vector>

#include "model/device/late_values.hpp"
#include "plan/text/errors.hpp"
#include "runtime/comm/reduce.hpp"
#include "runtime/cpu/cpu_device.hpp"
#include "runtime/cpu/ops/kernels.hpp"
#include "runtime/cuda/check.hpp"
#include "runtime/cuda/cuda_device.hpp"
#include "runtime/cuda/event_marks.hpp"
#include "tests/runtime/comm/nccl/fake_cuda.hpp"

namespace mgplan::runtime::cuda {

struct CublasLt::State {};
CublasLt::~CublasLt() = default;

namespace {

constexpr std::int64_t kFreeBytes = std::int64_t{1} << 36;

/// Memory that no sanitizer watches: work runs behind the takes and returns of its tensors.
class FakeBlocks final : public BlockSource {
public:
    void* take(std::int64_t bytes) noexcept override { return std::aligned_alloc(64, static_cast<std::size_t>(bytes)); }
    void give_back(void* block, std::int64_t /*bytes*/) noexcept override { std::free(block); }
    void spoil(void* block, std::int64_t bytes) noexcept override { std::memset(block, 0xff, static_cast<std::size_t>(bytes)); }
    bool is_spoiled(const void* /*block*/, std::int64_t /*bytes*/) noexcept override { return true; }
};

std::unique_ptr<MeasuredAllocator> make_allocator(const ArenaScript* script) {
    static FakeBlocks blocks;
    if (script != nullptr) return std::make_unique<ArenaAllocator>(*script, blocks);
    return std::make_unique<PoolAllocator>(blocks);
}

/// A kernel of the CPU on the device's stream. Its arguments are values and addresses of tensors.
template <auto Member>
struct OnDevice;
template <class Arguments, void (*model::KernelTable::*Member)(model::Device&, const Arguments&)>
struct OnDevice<Member> {
    static void call(model::Device& device, const Arguments& arguments) {
        tests::do_on_device([&device, arguments] { (cpu::kernels().*Member)(device, arguments); });
    }
};

/// What a library does for biases, in passes of the CPU's.
void matmul(model::Device& device, const model::MatmulArguments& arguments) {
    model::MatmulArguments product = arguments;
    product.bias = {};
    product.row_sums = {};
    tests::do_on_device([&device, arguments, product] {
        cpu::matmul(device, product);
        if (arguments.bias.data != nullptr) cpu::add_bias(device, {arguments.out, arguments.bias, arguments.m, arguments.n});
        if (arguments.row_sums.data == nullptr) return;
        MGPLAN_ASSERT(arguments.transpose_a && arguments.row_sums.dtype == Dtype::fp32, "sums of columns in fp32");
        std::vector<float> columns(static_cast<std::size_t>(arguments.m));
        std::memset(arguments.row_sums.data, 0, columns.size() * sizeof(float));
        model::Output scratch;
        scratch.data = columns.data();
        cpu::bias_gradient(device, {arguments.a, arguments.row_sums, scratch, arguments.k, arguments.m, 1});
    });
}

void dropout(model::Device& device, const model::DropoutArguments& arguments) {
    model::DropoutPlace kept = *arguments.place;
    kept.changing = {};  // a graph holds addresses, no tensors
    tests::do_on_device([&device, again = arguments, place = std::move(kept)]() mutable {
        again.place = &place;
        cpu::dropout(device, again);
    });
}

void reorder_blocks(model::Device& device, const model::ReorderBlocksArguments& arguments) {
    tests::do_on_device([&device, again = arguments, rows = std::vector(arguments.block_rows, arguments.block_rows + arguments.blocks),
                         order = std::vector(arguments.order, arguments.order + arguments.blocks)]() mutable {
        again.block_rows = rows.data();
        again.order = order.data();
        cpu::reorder_blocks(device, again);
    });
}

/// One whose arguments point to the caller's memory: cannot be recorded here.
template <auto Member>
struct AtOnce;
template <class Arguments, void (*model::KernelTable::*Member)(model::Device&, const Arguments&)>
struct AtOnce<Member> {
    static void call(model::Device& device, const Arguments& arguments) {
        if (tests::captures()) tests::refuse("a kernel that the fake does not record");
        tests::wait_for_graphs();
        (cpu::kernels().*Member)(device, arguments);
    }
};

// clang-format off
#define MGPLAN_RECORDED(each) \
    each(largest) each(quantise) each(quantise_blocks) each(transpose_bytes) each(follow_largest) each(norm) each(norm_backward) each(activation) each(activation_backward) each(xielu) each(xielu_backward) each(gate_rows) \
    each(gate_rows_backward) each(add_bias) each(bias_gradient) each(copy) each(add) each(add_in_order) each(clip_factor) each(scale) each(fill) each(fill_normal) each(copy_columns) \
    each(scale_columns) each(swap_leading) each(join_latent_keys) each(split_latent_keys) each(embedding) each(embedding_backward) each(row_maximum) each(softmax_sums) each(token_losses) each(sum_of_losses) each(soft_cap) each(clip) \
    each(cross_entropy_backward) each(attention) each(attention_backward) each(merge_attention) each(add_sinks) \
    each(sinks_gradient) each(rotary) each(route) each(route_backward) each(keep_within_capacity) \
    each(auxiliary_loss) each(auxiliary_loss_backward) each(count_by_expert) each(sort_by_expert) each(permute_rows) \
    each(unpermute_rows) each(permute_probabilities) each(unpermute_probabilities) each(causal_conv) each(causal_conv_backward) \
    each(short_conv) each(short_conv_backward) each(gated_norm) each(gated_norm_backward) each(state_space_scan) \
    each(state_space_scan_backward) each(delta_rule) \
    each(delta_rule_backward)
#define MGPLAN_AT_ONCE(each) \
    each(sums_of_squares) each(largest_of_arrays) each(quantise_arrays) each(adam_step) each(momentum_step) each(grouped_matmul) each(grouped_matmul_accumulate)

// clang-format on

const model::KernelTable& fake_kernels() {
    static const model::KernelTable table = [] {
        model::KernelTable made{};
#define MGPLAN_ON_DEVICE(name) made.name = OnDevice<&model::KernelTable::name>::call;
#define MGPLAN_CALL_AT_ONCE(name) made.name = AtOnce<&model::KernelTable::name>::call;
        MGPLAN_RECORDED(MGPLAN_ON_DEVICE)
        MGPLAN_AT_ONCE(MGPLAN_CALL_AT_ONCE)
        made.matmul = matmul;
        made.dropout = dropout;
        made.reorder_blocks = reorder_blocks;
        return made;
    }();
    return table;
}

}  // namespace

StagingRing::~StagingRing() {}  // none is made: uploads are copies on the host

CudaDevice::CudaDevice(int ordinal, int rank, const model::KernelTraits& traits, const ArenaScript* script, bool /*times_products*/)
    : CudaDeviceInterface(traits, make_allocator(script), &fake_kernels()),
      ordinal_(ordinal),
      rank_(rank),
      measured_(static_cast<MeasuredAllocator&>(Device::allocator())),
      pool_(script == nullptr ? static_cast<PoolAllocator*>(&measured_) : nullptr),
      arena_(script == nullptr ? nullptr : static_cast<ArenaAllocator*>(&measured_)) {
    reads_host_memory_ = true;  // it is the host's
    capture_ = std::make_unique<CudaCapture>(nullptr);
    name_rank_of_this_thread(rank);
}
CudaDevice::~CudaDevice() {
    tests::wait_for_graphs();
    std::free(uncounted_);
}
const std::byte* CudaDevice::uncounted(std::span<const std::byte> bytes) {
    uncounted_ = std::malloc(bytes.size());
    upload(uncounted_, bytes.data(), std::ssize(bytes));
    return static_cast<const std::byte*>(uncounted_);
}
void CudaDevice::synchronize() {
    tests::wait_for_graphs();
}
std::unique_ptr<model::DeviceMarks> CudaDevice::make_marks() {
    return std::make_unique<EventMarks>(nullptr);
}
std::unique_ptr<model::Stopwatch> CudaDevice::make_stopwatch() {
    return model::Device::make_stopwatch();
}
std::unique_ptr<model::LateValues> CudaDevice::make_late_values() {
    return model::Device::make_late_values();
}
std::int64_t CudaDevice::free_bytes() {
    return kFreeBytes - tests::bytes_of_graphs();
}
void CudaDevice::copy_on_device(void* to, const void* from, std::int64_t bytes) {
    tests::do_on_device([=] { std::memmove(to, from, static_cast<std::size_t>(bytes)); });
}
void CudaDevice::zero_memory(void* memory, std::int64_t bytes) {
    tests::do_on_device([=] { std::memset(memory, 0, static_cast<std::size_t>(bytes)); });
}
void CudaDevice::upload(void* to, const void* from, std::int64_t bytes) {
    if (tests::captures()) tests::refuse("an upload while a stream is captured");
    copy_on_device(to, from, bytes);
}
void CudaDevice::download(void* to, const void* from, std::int64_t bytes) {
    if (tests::captures()) tests::refuse("a download while a stream is captured");
    copy_on_device(to, from, bytes);
}
void CudaDevice::reduce(Dtype dtype, model::Reduction reduction, std::span<const std::byte* const> inputs,
                        std::span<std::byte* const> outputs, std::int64_t begin, std::int64_t end) {
    reduce_in_order(dtype, reduction, inputs, outputs, begin, end);
}

}  // namespace mgplan::runtime::cuda
