#pragma once

// Memory blocks of a worker's HTTP/2 sessions. A request makes and frees a handful of small blocks
// of always the same sizes; here that is a few instructions each, without the general allocator's
// locks and bookkeeping. Freed blocks are kept for reuse by size class and given back only when the
// pool ends, so it holds the most that was ever in use. One thread.

#include <array>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace spate::agent {

class BlockPool {
 public:
  BlockPool() = default;
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;
  ~BlockPool() {
    for (void* slab : slabs_) std::free(slab);
  }

  // nullptr when memory is out. Aligned for any type; size 0 is 1.
  void* allocate(std::size_t size) {
    const std::size_t cls = (size + kGrain - 1) / kGrain;
    if (cls >= kClasses) return allocate_large(size);
    if (Free* block = free_[cls]) {
      free_[cls] = block->next;
      return block;
    }
    return carve(cls);
  }

  void release(void* pointer) {
    if (pointer == nullptr) return;
    const std::size_t cls = header_of(pointer)->cls;
    if (cls >= kClasses) {
      std::free(header_of(pointer));
      return;
    }
    auto* block = static_cast<Free*>(pointer);
    block->next = free_[cls];
    free_[cls] = block;
  }

  void* reallocate(void* pointer, std::size_t size) {
    if (pointer == nullptr) return allocate(size);
    const std::size_t old_size = header_of(pointer)->size;
    if (size <= old_size) return pointer;
    void* moved = allocate(size);
    if (moved == nullptr) return nullptr;
    std::memcpy(moved, pointer, old_size);
    release(pointer);
    return moved;
  }

 private:
  static constexpr std::size_t kGrain = 16;
  static constexpr std::size_t kClasses = 66;  // up to 1040 bytes; larger ones go to malloc
  static constexpr std::size_t kSlabBytes = 64 * 1024;

  struct alignas(std::max_align_t) Header {
    std::size_t cls;
    std::size_t size;  // usable
  };
  struct Free {
    Free* next;
  };

  static Header* header_of(void* pointer) { return static_cast<Header*>(pointer) - 1; }

  void* allocate_large(std::size_t size) {
    auto* header = static_cast<Header*>(std::malloc(sizeof(Header) + size));
    if (header == nullptr) return nullptr;
    *header = {kClasses, size};
    return header + 1;
  }

  void* carve(std::size_t cls) {
    const std::size_t usable = cls == 0 ? kGrain : cls * kGrain;
    const std::size_t whole = sizeof(Header) + usable;
    if (left_ < whole) {
      void* slab = std::malloc(kSlabBytes);
      if (slab == nullptr) return nullptr;
      slabs_.push_back(slab);
      next_ = static_cast<std::byte*>(slab);
      left_ = kSlabBytes;
    }
    auto* header = reinterpret_cast<Header*>(next_);
    *header = {cls, usable};
    next_ += whole;
    left_ -= whole;
    return header + 1;
  }

  std::array<Free*, kClasses> free_{};
  std::vector<void*> slabs_;
  std::byte* next_ = nullptr;
  std::size_t left_ = 0;
};

}  // namespace spate::agent
