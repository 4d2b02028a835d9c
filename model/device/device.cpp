#include "model/device/device.hpp"

#include <chrono>

#include <fmt/core.h>

#include "model/device/graph_capture.hpp"
#include "model/ops/kernel_table.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::model {
namespace {

class HostStopwatch final : public Stopwatch {
public:
    explicit HostStopwatch(Device& device) : device_(device) {}
    void start() override {
        device_.synchronize();
        started_ = Clock::now();
    }
    void stop() override {
        device_.synchronize();
        stopped_ = Clock::now();
    }
    double seconds() override { return std::chrono::duration<double>(stopped_ - started_).count(); }

private:
    using Clock = std::chrono::steady_clock;
    Device& device_;
    Clock::time_point started_, stopped_;
};

}  // namespace

std::unique_ptr<Stopwatch> Device::make_stopwatch() {
    return std::make_unique<HostStopwatch>(*this);
}

Device::Device(DeviceKind kind, const KernelTraits& traits, std::unique_ptr<Allocator> allocator, const KernelTable* kernels)
    : kind_(kind), traits_(traits), allocator_(std::move(allocator)), kernels_(kernels) {
    if (kernels_ == nullptr) return;
    const std::string_view missing = missing_kernel(*kernels_);
    MGPLAN_ASSERT(missing.empty(), fmt::format("the kernel table of a {} device has every kernel; {} is missing",
                                               kind_ == DeviceKind::cuda ? "CUDA" : "CPU", missing));
}

Tensor Device::empty(const Shape& shape, Dtype dtype, MemoryCategory category, std::string_view name) {
    const std::int64_t bytes = shape.elements() * bytes_of(dtype);
    return {shape, dtype, std::make_shared<Storage>(*this, bytes, category, name), 0};
}

Tensor Device::zeros(const Shape& shape, Dtype dtype, MemoryCategory category, std::string_view name) {
    Tensor tensor = empty(shape, dtype, category, name);
    if (computes() && tensor.bytes() > 0) do_zero(tensor.data(), tensor.bytes());
    return tensor;
}

Tensor Device::without_memory(const Shape& shape, Dtype dtype, MemoryCategory category, std::string_view name) {
    const std::int64_t bytes = shape.elements() * bytes_of(dtype);
    return {shape, dtype, std::make_shared<Storage>(*this, bytes, category, name, false), 0};
}

const KernelTable& Device::kernels() const {
    MGPLAN_ASSERT(kernels_ != nullptr, "this device has kernels");
    return *kernels_;
}

void Device::write(const Tensor& tensor, const void* values) {
    if (!computes() || tensor.bytes() == 0) return;
    expect_host_access();
    do_write(tensor.data(), values, tensor.bytes());
}

void Device::read(const Tensor& tensor, void* values) {
    if (!computes() || tensor.bytes() == 0) return;
    expect_host_access();
    do_read(values, tensor.data(), tensor.bytes());
}

void Device::expect_host_access() {
    if (recorder_ != nullptr) recorder_->on_host_access();
}

void Device::tell_recorder(std::string_view op) {
    recorder_->on_op(op);
}

Storage::Storage(Device& device, std::int64_t bytes, MemoryCategory category, std::string_view name, bool taken)
    : device_(device), number_(device.next_storage()), bytes_(bytes), category_(category), name_(name) {
    if (taken) take();
}

Storage::~Storage() {
    if (taken_) give_back();
}

void Storage::take() {
    MGPLAN_ASSERT(!taken_, "a storage takes memory that it does not have");
    data_ = bytes_ > 0 ? device_.allocator().take(bytes_, category_, name_) : nullptr;
    taken_ = true;
    if (device_.recorder() != nullptr) device_.recorder()->on_take(*this, name_);
}

void Storage::give_back() noexcept {
    if (device_.recorder() != nullptr) device_.recorder()->on_give_back(*this);
    if (bytes_ > 0) device_.allocator().give_back(data_, bytes_, category_);
    data_ = nullptr;
    taken_ = false;
}

}  // namespace mgplan::model
