#include "model/device/device.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <new>
#include <utility>

#include <fmt/core.h>

#include "model/device/graph_capture.hpp"
#include "model/device/late_values.hpp"
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

class ValuesAtOnce final : public LateValues {
public:
    explicit ValuesAtOnce(Device& device) : device_(device) {}
    void send(std::span<const Tensor> tensors) override {
        values_.clear();
        for (const Tensor& tensor : tensors) {
            const auto begin = static_cast<std::ptrdiff_t>(values_.size());
            values_.resize(values_.size() + static_cast<std::size_t>(tensor.elements()));
            device_.read(tensor, std::next(values_.data(), begin));
        }
    }
    std::vector<double> receive() override { return std::exchange(values_, {}); }

private:
    Device& device_;
    std::vector<double> values_;
};

constexpr std::align_val_t kHostAlignment{64};

/// Returns the first of a tensor's values if they are offloaded to the host, else nullptr.
std::byte* waiting_on_host(const Tensor& tensor) {
    const Storage& storage = *tensor.storage();
    return storage.on_host() ? storage.host_data() + tensor.first_element() * bytes_of(tensor.dtype()) : nullptr;
}

}  // namespace

std::unique_ptr<Stopwatch> Device::make_stopwatch() {
    return std::make_unique<HostStopwatch>(*this);
}

std::unique_ptr<LateValues> Device::make_late_values() {
    return std::make_unique<ValuesAtOnce>(*this);
}

Device::Device(DeviceKind kind, const KernelTraits& traits, std::unique_ptr<Allocator> allocator, const KernelTable* kernels)
    : kind_(kind), traits_(traits), allocator_(std::move(allocator)), kernels_(kernels) {}

Tensor Device::empty(const Shape& shape, Dtype dtype, MemoryCategory category, std::string_view name) {
    const std::int64_t bytes = shape.elements() * bytes_of(dtype);
    return {shape, dtype, std::make_shared<Storage>(*this, bytes, category, name), 0};
}

Tensor Device::zeros(const Shape& shape, Dtype dtype, MemoryCategory category, std::string_view name) {
    Tensor tensor = empty(shape, dtype, category, name);
    zero(tensor);
    return tensor;
}

void Device::zero(const Tensor& tensor) {
    if (tensor.bytes() == 0) return;
    report({.name = "zero", .bytes_written = tensor.bytes()});
    if (computes()) do_zero(tensor.data(), tensor.bytes());
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
    if (std::byte* const waiting = waiting_on_host(tensor))
        std::memcpy(waiting, values, static_cast<std::size_t>(tensor.bytes()));
    else
        do_write(tensor.data(), values, tensor.bytes());
}

void Device::read(const Tensor& tensor, void* values) {
    if (!computes() || tensor.bytes() == 0) return;
    expect_host_access();
    if (const std::byte* const waiting = waiting_on_host(tensor))
        std::memcpy(values, waiting, static_cast<std::size_t>(tensor.bytes()));
    else
        do_read(values, tensor.data(), tensor.bytes());
}

std::byte* Device::take_on_host(std::int64_t bytes) {
    std::byte* const memory = computes() && bytes > 0 ? do_take_on_host(bytes) : nullptr;
    host_bytes_ += bytes;
    host_peak_ = std::max(host_peak_, host_bytes_);
    return memory;
}

void Device::give_back_on_host(std::byte* memory, std::int64_t bytes) noexcept {
    host_bytes_ -= bytes;
    if (memory != nullptr) do_give_back_on_host(memory, bytes);
}

std::byte* Device::do_take_on_host(std::int64_t bytes) {
    return static_cast<std::byte*>(::operator new(static_cast<std::size_t>(bytes), kHostAlignment));
}

void Device::do_give_back_on_host(std::byte* memory, std::int64_t /*bytes*/) noexcept {
    ::operator delete(memory, kHostAlignment);
}

void Device::copy_to_host(const std::byte* from, std::byte* to, std::int64_t bytes) {
    report({.name = "copy_to_host", .bytes_read = bytes, .bytes_written = bytes});
    if (!computes() || bytes == 0) return;
    expect_host_access();
    do_read(to, from, bytes);
}

void Device::copy_from_host(const std::byte* from, std::byte* to, std::int64_t bytes) {
    report({.name = "copy_from_host", .bytes_read = bytes, .bytes_written = bytes});
    if (!computes() || bytes == 0) return;
    expect_host_access();
    do_write(to, from, bytes);
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
    if (on_host_) device_.give_back_on_host(host_data_, bytes_);
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

void Storage::to_host() {
    MGPLAN_ASSERT(taken_ && !on_host_, "what goes to the host is on the device");
    host_data_ = device_.take_on_host(bytes_);
    on_host_ = true;
    device_.copy_to_host(data(), host_data_, bytes_);
    give_back();
}

void Storage::from_host() {
    MGPLAN_ASSERT(on_host_, "what comes from the host waits there");
    take();
    device_.copy_from_host(host_data_, data(), bytes_);
    device_.give_back_on_host(host_data_, bytes_);
    host_data_ = nullptr;
    on_host_ = false;
}

}  // namespace mgplan::model
