#include "runtime/checkpoint/durable_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <new>
#include <utility>

#include <fmt/core.h>

#include "plan/text/errors.hpp"

namespace mgplan::runtime {
namespace {

constexpr std::size_t kWriteBytes = std::size_t{16} << 20;

std::string way_out(int error, FilePurpose purpose) {
    const bool weights = purpose == FilePurpose::weights;
    if (error == EFBIG)
        return weights ? "; raise the limit of a file's size (ulimit -f)"
                       : "; raise the limit of a file's size (ulimit -f), or use more ranks, which write smaller files";
    if (error == ELOOP) return "; it is a symbolic link, which is not followed: remove it";
    if (error == ENOSPC || error == EDQUOT)
        return weights ? "; make room for the weights, which the folder holds twice while they are written, or export to another disk"
                       : "; make room, or let fewer checkpoints be kept (--checkpoint-keep)";
    if (error == EROFS || error == EACCES || error == EPERM) return "; choose a folder that every rank may write";
    if (error == ENOENT || error == ENOTDIR || error == EINVAL) return "; name a folder that can be made and written";
    return "";
}

[[noreturn]] void fail_with(int error, const std::string& path, std::string_view doing, FilePurpose purpose) {
    throw RunError(
        fmt::format("{} file {} cannot be {}: {}{}", to_string(purpose), path, doing, std::strerror(error), way_out(error, purpose)));
}

}  // namespace

std::string_view to_string(FilePurpose purpose) {
    return purpose == FilePurpose::weights ? "weights" : "checkpoint";
}

DurableFile::DurableFile(std::string path, std::int64_t size, FilePurpose purpose) : path_(std::move(path)), purpose_(purpose) {
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (descriptor_ < 0) fail("made");
    // Some file systems cannot reserve space and return these codes; others fail here if the disk is full.
    if (size > 0 && ::fallocate(descriptor_, 0, 0, size) != 0 && errno != EOPNOTSUPP && errno != ENOSYS && errno != EINTR) {
        const int error = errno;
        ::close(descriptor_);
        fail_with(error, path_, fmt::format("given {} bytes", size), purpose_);
    }
}

DurableFile::~DurableFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
}

void DurableFile::fail(std::string_view doing) const {
    fail_with(errno, path_, doing, purpose_);
}

void DurableFile::write(std::int64_t at, std::span<const std::byte> bytes) {
    const std::int64_t begin = at;
    const auto size = static_cast<std::int64_t>(bytes.size());
    const auto is_block = [](auto value) { return value % BlockWriter::kBlock == 0; };
    set_direct(may_be_direct_ && !bytes.empty() && is_block(at) && is_block(size) &&
               is_block(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(bytes.data()))));
    while (!bytes.empty()) {
        const ssize_t count = ::pwrite(descriptor_, bytes.data(), bytes.size(), at);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0 && errno == EINVAL && direct_) {
            // The file system accepts the flag but not the write, or writes larger blocks only.
            may_be_direct_ = false;
            set_direct(false);
            continue;
        }
        if (count < 0) fail("written");
        bytes = bytes.subspan(static_cast<std::size_t>(count));
        at += count;
    }
    // Starts writing to the disk while the next bytes are made; finish() waits for its end.
    if (!direct_) static_cast<void>(::sync_file_range(descriptor_, begin, size, SYNC_FILE_RANGE_WRITE));
}

void DurableFile::set_direct(bool direct) {
    if (direct == direct_) return;
    const int flags = ::fcntl(descriptor_, F_GETFL);
    if (flags >= 0 && ::fcntl(descriptor_, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT) == 0)
        direct_ = direct;
    else
        may_be_direct_ = false;
}

void DurableFile::finish() {
    if (::fsync(descriptor_) != 0) fail("brought to the disk");
    const int descriptor = descriptor_;
    descriptor_ = -1;
    if (::close(descriptor) != 0) fail("closed");
}

void BlockWriter::Free::operator()(std::byte* memory) const {
    std::free(memory);
}

BlockWriter::BlockWriter(DurableFile& file, std::int64_t begin) : file_(file), at_(begin) {
    MGPLAN_ASSERT(begin % kBlock == 0, "blocks begin at their multiples");
    for (auto& buffer : buffers_) {
        buffer.reset(static_cast<std::byte*>(std::aligned_alloc(kBlock, kWriteBytes)));
        if (!buffer) throw std::bad_alloc();
    }
}

void BlockWriter::append(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const std::size_t count = std::min(bytes.size(), kWriteBytes - filled_);
        std::memcpy(buffers_[0].get() + filled_, bytes.data(), count);
        filled_ += count;
        bytes = bytes.subspan(count);
        if (filled_ < kWriteBytes) return;
        if (writing_.valid()) writing_.get();
        std::swap(buffers_[0], buffers_[1]);
        writing_ = std::async(std::launch::async, [this, at = at_] { file_.write(at, {buffers_[1].get(), kWriteBytes}); });
        at_ += static_cast<std::int64_t>(filled_);
        filled_ = 0;
    }
}

void BlockWriter::finish() {
    if (writing_.valid()) writing_.get();
    const std::span<const std::byte> rest(buffers_[0].get(), filled_);
    const std::size_t whole = filled_ / kBlock * kBlock;
    if (whole > 0) file_.write(at_, rest.first(whole));
    if (whole < filled_) file_.write(at_ + static_cast<std::int64_t>(whole), rest.subspan(whole));
    filled_ = 0;
}

void replace_file(const std::string& path, std::string_view text, FilePurpose purpose) {
    const std::string draft = path + ".partial";
    DurableFile file(draft, 0, purpose);
    file.write(0, std::as_bytes(std::span(text)));
    file.finish();
    if (std::rename(draft.c_str(), path.c_str()) != 0) fail_with(errno, path, "renamed into place", purpose);
    sync_folder(std::filesystem::path(path).parent_path().string(), purpose);
}

void make_folder(const std::string& path, FilePurpose purpose) {
    namespace fs = std::filesystem;
    std::error_code error;
    if (fs::is_symlink(fs::symlink_status(path, error)) && !fs::exists(path, error))
        throw RunError(fmt::format("{} folder {} is a symbolic link to {}, which is not there; make that folder, or remove the link",
                                   to_string(purpose), path, fs::read_symlink(path, error).string()));
    fs::create_directories(path, error);
    if (error)
        throw RunError(
            fmt::format("{} folder {} cannot be made: {}{}", to_string(purpose), path, error.message(), way_out(error.value(), purpose)));
    if (!fs::is_directory(path, error)) throw RunError(fmt::format("{} folder {} is no folder; name another", to_string(purpose), path));
}

void sync_folder(const std::string& path, FilePurpose purpose) {
    const int descriptor = ::open(path.empty() ? "." : path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) fail_with(errno, path, "opened", purpose);
    const int result = ::fsync(descriptor);
    const int error = errno;
    ::close(descriptor);
    // Some network file systems have nothing to do here and say that they cannot.
    if (result != 0 && error != EINVAL && error != ENOTSUP) fail_with(error, path, "brought to the disk", purpose);
}

}  // namespace mgplan::runtime
