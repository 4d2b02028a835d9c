#pragma once
// The first seam: the device that computes. Layers and optimizer are written against this class and run on shapes (meta), CPU and CUDA.

#include <compare>
#include <cstdint>
#include <memory>
#include <string_view>

#include "model/device/kernel_traits.hpp"
#include "model/device/memory.hpp"
#include "model/device/tensor.hpp"

namespace mgplan::model {

struct KernelTable;
class GraphRecorder;
class LateValues;
class MemoryOperations;
class WorkCapture;

/// Sizes of a matrix product, C (m, n) = or += op(A) (m, k) · op(B) (k, n).
struct ProductSizes {
    std::int64_t m = 0, n = 0, k = 0;  ///< m = 0: no product
    bool transpose_a = false, transpose_b = false, accumulate = false;
    Dtype dtype = Dtype::fp32;  ///< of A and B
    auto operator<=>(const ProductSizes&) const = default;
};

/// Sizes of a grouped product: one product for each group that has rows. m, with `accumulate` k, are the rows of a group: the
/// mean of these groups, rounded up.
struct GroupedProductSizes {
    std::int64_t groups = 0;  ///< with rows; 0: no such product
    std::int64_t m = 0, n = 0, k = 0;
    bool transpose_b = false, accumulate = false;
    Dtype dtype = Dtype::fp32;  ///< of A and B
    auto operator<=>(const GroupedProductSizes&) const = default;
};

/// Sizes of causal attention over whole sequences.
struct AttentionExtent {
    std::int64_t sequence = 0;  ///< 0: no such attention
    std::int64_t batch = 0, heads = 0, kv_heads = 0, qk_dim = 0, v_dim = 0;
    Dtype dtype = Dtype::fp32;
    auto operator<=>(const AttentionExtent&) const = default;
};

/// Sizes of any attention or its backward: one rank's queries against one rank's keys, with a causal mask over their places.
struct AttentionPart {
    std::int64_t queries = 0, keys = 0;  ///< places of each sequence; 0: no attention
    std::int64_t batch = 0, heads = 0, kv_heads = 0, qk_dim = 0, v_dim = 0;
    std::int64_t window = 0;  ///< places that a query sees; 0: all before it
    bool fused = false;       ///< one kernel of a library (model/ops/fused_attention.hpp); else separate products
    bool whole = false;       ///< every query and key of its sequences, and no window
    Dtype dtype = Dtype::fp32;
    /// Nothing (sequence 0) unless whole.
    [[nodiscard]] AttentionExtent extent() const {
        return whole ? AttentionExtent{queries, batch, heads, kv_heads, qk_dim, v_dim, dtype} : AttentionExtent{};
    }
    /// FLOPs of causal attention as model FLOPs count it: 2 for each pair of a query and a key and each value of a head's queries and
    /// outputs, over half of the pairs.
    [[nodiscard]] double causal_half_flops() const {
        return static_cast<double>(batch * heads * (qk_dim + v_dim)) * static_cast<double>(queries) * static_cast<double>(keys);
    }
};

/// Arithmetic of an op that is neither a product nor attention, whose time may exceed that of moving its bytes.
struct Arithmetic {
    bool small_products = false;  ///< its FLOPs are products of small matrices in one kernel: scans by chunks, maps by blocks, chosen keys
    double model_share = 0;       ///< share of its FLOPs that model FLOPs include, none of them twice
    double exponentials = 0;      ///< if its kernel's arithmetic is counted
    double instructions = 0;      ///< other ones, of fp32; of fused attention those that draw dropout's masks
};

/// Work of mgplan's own GPU kernels for an op that other engines have fused kernels for, all its kernels together. If `bytes` is set, the
/// time of the op follows from this in place of the record's FLOPs and bytes.
struct OwnKernels {
    double bytes = 0;                           ///< read and written, including values that one kernel passes to the next
    double product_flops = 0;                   ///< of matrix products by a library
    double exponentials = 0, instructions = 0;  ///< of all other kernels, of fp32
    double of_a_thread = 0;                     ///< instructions that wait for each other, as rows of a triangular matrix do
};

/// One executed op, for listeners: the meta device's trace, a profiler.
struct OpRecord {
    std::string_view name;  ///< "matmul", "rms_norm_backward"; a literal, so it may be kept
    double flops = 0;
    std::int64_t bytes_read = 0;
    std::int64_t bytes_written = 0;
    /// Kernels that a GPU's device starts for it, and copies and zeros that its kernels' bodies write: all that its host issues one by one.
    /// Zeros that a layer writes between ops are an op of their own (Device::zero()). Fused attention of a library counts 1, its backward
    /// 3 (FlashAttention's, flash_bwd_launch_template.h; cuDNN's come in one call).
    std::int64_t launches = 1;
    ProductSizes product{};  ///< of a single matrix product
    GroupedProductSizes grouped{};
    AttentionPart part{};  ///< of every attention and its backward
    Arithmetic arithmetic{};
    OwnKernels own{};
};

/// Measures the device's time for all work that is issued between start() and stop().
class Stopwatch {
public:
    virtual ~Stopwatch() = default;
    virtual void start() = 0;
    virtual void stop() = 0;
    /// Waits for the work in between, and returns its time on the device.
    [[nodiscard]] virtual double seconds() = 0;
};

class OpListener {
public:
    virtual ~OpListener() = default;
    virtual void on_op(const OpRecord& record) = 0;
    /// A stretch of work begins or ends (see Range); they nest.
    virtual void on_range_begin(std::string_view /*name*/, std::int64_t /*number*/) {}
    virtual void on_range_end() {}
};

/// One device as one rank uses it, from one thread. Ops are free functions in model/ops: they apply their shape rule,
/// allocate their output here, call the listener, and call the kernel table unless the device has shapes alone.
class Device {
public:
    virtual ~Device() = default;
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;

    [[nodiscard]] DeviceKind kind() const { return kind_; }
    /// false on the meta device: tensors have shapes and no values.
    [[nodiscard]] bool computes() const { return kind_ != DeviceKind::meta; }
    /// Traits of the kernels that run here; on the meta device, those of the device it stands for.
    [[nodiscard]] const KernelTraits& traits() const { return traits_; }

    /// A tensor with undefined contents. `name`: a literal, so it may be kept. Throws std::bad_alloc.
    [[nodiscard]] Tensor empty(const Shape& shape, Dtype dtype, MemoryCategory category, std::string_view name);
    /// A tensor of zeros.
    [[nodiscard]] Tensor zeros(const Shape& shape, Dtype dtype, MemoryCategory category, std::string_view name);
    /// A tensor without memory until its storage takes some.
    [[nodiscard]] Tensor without_memory(const Shape& shape, Dtype dtype, MemoryCategory category, std::string_view name);

    /// Kernels of this device; an assertion on the meta device.
    [[nodiscard]] const KernelTable& kernels() const;

    /// Copies values between host memory and a tensor of this device, also one whose storage waits on the host; nothing happens on the meta
    /// device.
    void write(const Tensor& tensor, const void* values);
    void read(const Tensor& tensor, void* values);

    /// Sets all bytes of a tensor of this device to 0; op "zero", unless it is empty. Nothing happens on the meta device.
    void zero(const Tensor& tensor);

    /// Memory of the host for a storage that waits there, aligned to 64 bytes; counted, on the meta device without an address. Throws
    /// std::bad_alloc.
    [[nodiscard]] std::byte* take_on_host(std::int64_t bytes);
    void give_back_on_host(std::byte* memory, std::int64_t bytes) noexcept;
    /// Copies a storage's bytes between the device and such memory; ops "copy_to_host" and "copy_from_host".
    void copy_to_host(const std::byte* from, std::byte* to, std::int64_t bytes);
    void copy_from_host(const std::byte* from, std::byte* to, std::int64_t bytes);
    /// Most bytes that waited on the host at one time.
    [[nodiscard]] std::int64_t host_peak() const { return host_peak_; }

    /// Waits until everything issued so far is done.
    virtual void synchronize() {}

    /// For measurements; must not outlive the device. By the host's clock where nothing else is said, which is right where work
    /// is done when its call returns.
    [[nodiscard]] virtual std::unique_ptr<Stopwatch> make_stopwatch();

    /// For values that the host reads once it has issued more; must not outlive the device. Where nothing else is said they are read when
    /// they are sent, which is right where work is done when its call returns.
    [[nodiscard]] virtual std::unique_ptr<LateValues> make_late_values();

    /// For communicators inside one process; nullptr where this device's memory is host memory.
    [[nodiscard]] virtual MemoryOperations* memory_operations() { return nullptr; }

    /// Records this device's work for CUDA graphs (graph_capture.hpp); nullptr where it cannot.
    [[nodiscard]] virtual WorkCapture* work_capture() { return nullptr; }
    /// Sets the recorder that is called, while work is captured, for allocations and for work that no graph can hold; nullptr: no capture.
    void set_recorder(GraphRecorder* recorder) { recorder_ = recorder; }
    [[nodiscard]] GraphRecorder* recorder() const { return recorder_; }
    /// Values pass between host and device: throws RunError while work is captured.
    void expect_host_access();

    void set_listener(OpListener* listener) { listener_ = listener; }
    void report(const OpRecord& record) {
        if (recorder_ != nullptr) tell_recorder(record.name);
        if (listener_ != nullptr) listener_->on_op(record);
    }
    /// The same for an op whose arithmetic counts besides the bytes that it moves.
    void report(OpRecord record, const Arithmetic& arithmetic) {
        record.arithmetic = arithmetic;
        report(record);
    }
    [[nodiscard]] OpListener* listener() const { return listener_; }
    [[nodiscard]] Allocator& allocator() { return *allocator_; }
    /// Numbers this device's storages from 1.
    [[nodiscard]] std::uint64_t next_storage() { return ++storages_; }

protected:
    Device(DeviceKind kind, const KernelTraits& traits, std::unique_ptr<Allocator> allocator, const KernelTable* kernels);

    virtual void do_write(void* to, const void* from, std::int64_t bytes) = 0;
    virtual void do_read(void* to, const void* from, std::int64_t bytes) = 0;
    virtual void do_zero(void* memory, std::int64_t bytes) = 0;
    /// Host memory that copies reach at their full rate; plain memory where nothing else is said. Only where there are values.
    [[nodiscard]] virtual std::byte* do_take_on_host(std::int64_t bytes);
    virtual void do_give_back_on_host(std::byte* memory, std::int64_t bytes) noexcept;

    /// Another table of the same kernels, one that records their calls say.
    void use_kernels(const KernelTable* kernels) { kernels_ = kernels; }

private:
    void tell_recorder(std::string_view op);

    DeviceKind kind_;
    KernelTraits traits_;
    std::unique_ptr<Allocator> allocator_;
    const KernelTable* kernels_;
    OpListener* listener_ = nullptr;
    GraphRecorder* recorder_ = nullptr;
    std::uint64_t storages_ = 0;
    std::int64_t host_bytes_ = 0, host_peak_ = 0;
};

/// Names a stretch of work for the device's listener: a layer's forward, an op of the pipeline schedule.
class Range {
public:
    /// `name`: a literal; `number`: which one (layer, chunk), -1 where there is only one.
    Range(const Device& device, std::string_view name, std::int64_t number = -1) : listener_(device.listener()) {
        if (listener_ != nullptr) listener_->on_range_begin(name, number);
    }
    ~Range() {
        if (listener_ != nullptr) listener_->on_range_end();
    }
    Range(const Range&) = delete;
    Range& operator=(const Range&) = delete;

private:
    OpListener* listener_;
};

/// A piece of a device's memory, shared by the tensors that view it. The memory may be taken and given back under them: layers keep
/// views of a weight that has memory only while it is used.
class Storage {
public:
    /// `taken`: with its memory. `name`: a literal.
    Storage(Device& device, std::int64_t bytes, MemoryCategory category, std::string_view name, bool taken = true);
    ~Storage();
    Storage(const Storage&) = delete;
    Storage& operator=(const Storage&) = delete;

    [[nodiscard]] Device& device() const { return device_; }
    /// Memory for a storage that has none, contents undefined. Throws std::bad_alloc.
    void take();
    /// Gives it back; the tensors must not be read or written until the next take().
    void give_back() noexcept;
    [[nodiscard]] bool taken() const { return taken_; }
    /// to_host() moves the contents of a storage that has memory to the host, and gives that memory back; the reverse takes memory. In
    /// between the tensors may be read and written only by Device::read() and write(). Throws std::bad_alloc.
    void to_host();
    void from_host();
    [[nodiscard]] bool on_host() const { return on_host_; }
    /// The contents there; nullptr on the meta device.
    [[nodiscard]] std::byte* host_data() const { return host_data_; }
    /// nullptr on the meta device, where there are no bytes, and without memory.
    [[nodiscard]] std::byte* data() const { return device_.computes() ? data_ : nullptr; }
    [[nodiscard]] std::int64_t bytes() const { return bytes_; }
    [[nodiscard]] MemoryCategory category() const { return category_; }
    /// No other storage of the device has or had this number.
    [[nodiscard]] std::uint64_t number() const { return number_; }

private:
    Device& device_;
    std::uint64_t number_;
    std::int64_t bytes_;
    MemoryCategory category_;
    std::string_view name_;
    bool taken_ = false;
    bool on_host_ = false;
    std::byte* data_ = nullptr;
    std::byte* host_data_ = nullptr;
};

}  // namespace mgplan::model
