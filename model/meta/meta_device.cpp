#include "model/meta/meta_device.hpp"

#include <algorithm>
#include <cstdint>

namespace mgplan::model {

std::byte* MetaAllocator::take(std::int64_t bytes, MemoryCategory category, std::string_view name) {
    const auto index = static_cast<std::size_t>(category);
    use_.current[index] += bytes;
    live_ += bytes;
    use_.high_water[index] = std::max(use_.high_water[index], use_.current[index]);
    if (live_ > use_.peak) {
        use_.peak = live_;
        use_.at_peak = use_.current;
    }
    const std::int64_t now = clock_++;
    if (!keep_records_) return nullptr;
    records_.push_back({name, category, bytes, now});
    // The number of the record, from 1, stands for the address.
    return reinterpret_cast<std::byte*>(records_.size());  // NOLINT(performance-no-int-to-ptr)
}

void MetaAllocator::give_back(std::byte* memory, std::int64_t bytes, MemoryCategory category) noexcept {
    use_.current[static_cast<std::size_t>(category)] -= bytes;
    live_ -= bytes;
    const std::int64_t now = clock_++;
    if (keep_records_) records_[reinterpret_cast<std::uintptr_t>(memory) - 1].returned = now;
}

void MetaAllocator::restart_high_water() {
    use_.high_water = use_.current;
    use_.peak = live_;
    use_.at_peak = use_.current;
}

MetaDevice::MetaDevice(const MetaDeviceOptions& options) : MetaDevice(options, std::make_unique<MetaAllocator>(options.keep_allocations)) {}

MetaDevice::MetaDevice(const MetaDeviceOptions& options, std::unique_ptr<MetaAllocator> allocator)
    : Device(DeviceKind::meta, options.stands_for, std::move(allocator), nullptr),
      meta_allocator_(static_cast<MetaAllocator&>(Device::allocator())),
      keep_ops_(options.keep_ops),
      keep_ranges_(options.keep_allocations) {
    if (keep_ops_ || keep_ranges_) set_listener(this);
}

void MetaDevice::on_range_begin(std::string_view name, std::int64_t number) {
    if (!keep_ranges_) return;
    ranges_.push_back({name, number, meta_allocator_.clock(), -1, static_cast<int>(open_ranges_.size())});
    open_ranges_.push_back(ranges_.size() - 1);
}

void MetaDevice::on_range_end() {
    if (!keep_ranges_) return;
    ranges_[open_ranges_.back()].end = meta_allocator_.clock();
    open_ranges_.pop_back();
}

// Device checks computes() first: none of these is ever called.
void MetaDevice::do_write(void* /*to*/, const void* /*from*/, std::int64_t /*bytes*/) {}
void MetaDevice::do_read(void* /*to*/, const void* /*from*/, std::int64_t /*bytes*/) {}
void MetaDevice::do_zero(void* /*memory*/, std::int64_t /*bytes*/) {}

}  // namespace mgplan::model
